"""Where a feed stands: everything that is needed to go on, as text to keep.

Text that comes back may be anybody's. What a feed of ours can reach is the bound: 100,000 documents are
remembered (about 43 characters each, more with many writers), and journals do not come in ten thousands.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from lorogo_client.feed.memory import FeedMemory, whole
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_document_id, is_token
from lorogo_protocol.pages import DOCUMENTS_MAX, FeedStart

_MARK = "lf1-"
_CHARS_MAX = 1 << 28
_BYTES_MAX = 1 << 30  # of a position, unpacked
_JOURNALS_MAX = 10_000
_PLACE_CHARS_MAX = 128  # in a journal: three numbers


class InvalidPosition(LorogoError):
    """The text is not the position of a feed."""

    code = "invalid-position"


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """Opaque: `str(position)` to keep it, `FeedPosition.parse(text)` to have it back."""

    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(
        cls, text: str, *, bytes_max: int = _BYTES_MAX, journals_max: int = _JOURNALS_MAX
    ) -> "FeedPosition":
        """The position, if it has at most so many bytes, unpacked, and journals. Raises InvalidPosition."""
        position = cls(text.strip())
        position.state(bytes_max=bytes_max, journals_max=journals_max)
        return position

    @classmethod
    def of(cls, state: "FeedState") -> "FeedPosition":
        """The position of a feed in that state."""
        documents = None if state.documents is None else sorted(state.documents)
        start = [state.start.epoch, state.start.sequence, state.start.time_ns]
        packed = msgpack.packb([start, documents, state.positions, state.memory.encode()], use_bin_type=True)
        return cls(_MARK + base64.urlsafe_b64encode(zlib.compress(packed, 1)).rstrip(b"=").decode())

    def state(self, *, bytes_max: int = _BYTES_MAX, journals_max: int = _JOURNALS_MAX) -> "FeedState":
        """What it holds; each time a new one. Raises InvalidPosition."""
        try:
            if len(self.text) > _CHARS_MAX:
                raise ValueError(f"it has more than {_CHARS_MAX} characters")
            if not self.text.startswith(_MARK):
                raise ValueError("it does not begin as one")
            body = self.text.removeprefix(_MARK).encode("ascii")
            unpacking = zlib.decompressobj()
            packed = unpacking.decompress(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)), bytes_max)
            if not unpacking.eof:
                raise ValueError("a part of it is missing")
            start, documents, positions, memory = msgpack.unpackb(packed, raw=False, strict_map_key=False)
            epoch, sequence, time_ns = map(whole, start)
            begun = FeedStart(epoch, sequence, time_ns)
            return FeedState(
                begun,
                None if documents is None else _named(documents),
                _places(positions, journals_max),
                FeedMemory.decode(memory, begun),
            )
        except (
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
            binascii.Error,
            zlib.error,
            msgpack.UnpackException,
        ) as error:
            raise InvalidPosition(f"this is not the position of a feed: {error}") from None


@dataclass(frozen=True, slots=True)
class FeedState:
    """A position, unpacked."""

    start: FeedStart
    documents: frozenset[str] | None
    positions: Mapping[str, str]  # by journal
    memory: FeedMemory


def _named(documents: object) -> frozenset[str]:
    """The documents that a feed is of. Raises ValueError."""
    if not isinstance(documents, list) or not 0 < len(documents) <= DOCUMENTS_MAX:
        raise ValueError(f"its documents are not 1 to {DOCUMENTS_MAX}")
    if not all(isinstance(one, str) and is_document_id(one) for one in documents):
        raise ValueError("it names a document that cannot be")
    return frozenset(documents)


def _places(positions: object, journals_max: int) -> Mapping[str, str]:
    """Where each journal goes on. Raises ValueError."""
    if not isinstance(positions, dict) or len(positions) > journals_max:
        raise ValueError(f"its journals are more than {journals_max}, or no table")
    for journal, place in positions.items():
        if not isinstance(journal, str) or not is_token(journal):
            raise ValueError("it names a journal that cannot be")
        if not isinstance(place, str) or len(place) > _PLACE_CHARS_MAX:
            raise ValueError("it names no place in a journal")
    return positions

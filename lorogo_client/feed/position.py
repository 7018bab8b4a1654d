"""The position of a feed as text: everything needed to resume it.

The text is untrusted input, so its size is bounded by what a real feed can reach: 100,000 documents
(about 43 characters each, more with many writers), and fewer than ten thousand journals.
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
from lorogo_protocol.journal.pages import DOCUMENTS_MAX, FeedStart

_MARK = "lf1-"
_CHARS_MAX = 1 << 28
_BYTES_MAX = 1 << 30  # of a position, unpacked
_JOURNALS_MAX = 10_000
_PLACE_CHARS_MAX = 128  # in a journal: three numbers


class InvalidPosition(LorogoError):
    """The text is not a feed position."""

    code = "invalid-position"


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """An opaque position: store `str(position)`, restore it with `FeedPosition.parse(text)`."""

    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def parse(
        cls, text: str, *, bytes_max: int = _BYTES_MAX, journals_max: int = _JOURNALS_MAX
    ) -> "FeedPosition":
        """Parse a position with bounded unpacked size and journal count. Raises InvalidPosition."""
        position = cls(text.strip())
        position.state(bytes_max=bytes_max, journals_max=journals_max)
        return position

    @classmethod
    def of(cls, state: "FeedState") -> "FeedPosition":
        """Return the position for a feed's state."""
        documents = None if state.documents is None else sorted(state.documents)
        start = [state.start.epoch, state.start.sequence, state.start.time_ns]
        packed = msgpack.packb([start, documents, state.positions, state.memory.encode()], use_bin_type=True)
        return cls(_MARK + base64.urlsafe_b64encode(zlib.compress(packed, 1)).rstrip(b"=").decode())

    def state(self, *, bytes_max: int = _BYTES_MAX, journals_max: int = _JOURNALS_MAX) -> "FeedState":
        """Unpack into a new state. Raises InvalidPosition."""
        try:
            if len(self.text) > _CHARS_MAX:
                raise ValueError(f"it has more than {_CHARS_MAX} characters")
            if not self.text.startswith(_MARK):
                raise ValueError(f"it does not start with {_MARK}")
            body = self.text.removeprefix(_MARK).encode("ascii")
            unpacking = zlib.decompressobj()
            packed = unpacking.decompress(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)), bytes_max)
            if not unpacking.eof:
                raise ValueError("it is truncated")
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
            raise InvalidPosition(f"not a feed position: {error}") from None


@dataclass(frozen=True, slots=True)
class FeedState:
    """A position, unpacked."""

    start: FeedStart
    documents: frozenset[str] | None
    positions: Mapping[str, str]  # by journal
    memory: FeedMemory


def _named(documents: object) -> frozenset[str]:
    """Check the feed's documents. Raises ValueError."""
    if not isinstance(documents, list) or not 0 < len(documents) <= DOCUMENTS_MAX:
        raise ValueError(f"it must have 1 to {DOCUMENTS_MAX} documents")
    if not all(isinstance(one, str) and is_document_id(one) for one in documents):
        raise ValueError("it has an invalid document id")
    return frozenset(documents)


def _places(positions: object, journals_max: int) -> Mapping[str, str]:
    """Check the resume position of each journal. Raises ValueError."""
    if not isinstance(positions, dict) or len(positions) > journals_max:
        raise ValueError(f"it has more than {journals_max} journals, or they are not a map")
    for journal, place in positions.items():
        if not isinstance(journal, str) or not is_token(journal):
            raise ValueError("it has an invalid journal name")
        if not isinstance(place, str) or len(place) > _PLACE_CHARS_MAX:
            raise ValueError("it has an invalid journal position")
    return positions

"""Where a feed stands: everything that is needed to go on, as text to keep."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from lorogo_client.feed.memory import Memory, whole
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.pages import Start

_MARK = "lf1-"
_BYTES_MAX = 1 << 30  # of a position, unpacked


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
    def parse(cls, text: str, *, bytes_max: int = _BYTES_MAX) -> "FeedPosition":
        """The position, if it has no more than so many bytes unpacked. Raises InvalidPosition."""
        position = cls(text.strip())
        position.state(bytes_max=bytes_max)
        return position

    @classmethod
    def of(cls, state: "FeedState") -> "FeedPosition":
        """The position of a feed in that state."""
        documents = None if state.documents is None else sorted(state.documents)
        start = [state.start.epoch, state.start.sequence, state.start.time_ns]
        packed = msgpack.packb([start, documents, state.positions, state.memory.encode()], use_bin_type=True)
        return cls(_MARK + base64.urlsafe_b64encode(zlib.compress(packed, 1)).rstrip(b"=").decode())

    def state(self, *, bytes_max: int = _BYTES_MAX) -> "FeedState":
        """What it holds; each time a new one. Raises InvalidPosition."""
        try:
            if not self.text.startswith(_MARK):
                raise ValueError("it does not begin as one")
            body = self.text.removeprefix(_MARK).encode("ascii")
            unpacking = zlib.decompressobj()
            packed = unpacking.decompress(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4)), bytes_max)
            if not unpacking.eof:
                raise ValueError("a part of it is missing")
            start, documents, positions, memory = msgpack.unpackb(packed, raw=False, strict_map_key=False)
            epoch, sequence, time_ns = map(whole, start)
            begun = Start(epoch, sequence, time_ns)
            return FeedState(
                begun,
                None if documents is None else frozenset(str(one) for one in documents),
                {str(journal): str(position) for journal, position in positions.items()},
                Memory.decode(memory, begun),
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

    start: Start
    documents: frozenset[str] | None
    positions: Mapping[str, str]  # by journal
    memory: Memory

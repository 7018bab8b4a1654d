"""Parser of the NATS protocol: splits received bytes into messages and control lines.

nats-py's parser does the same with some regular expressions, two deletions from its buffer and a coroutine
for each message. Here a message is one search for the end of its line. Control lines (PING, PONG, INFO, -ERR)
are rare; nats-py parses them.
"""

from collections.abc import Callable, Iterator

_LINE_BYTES_MAX = 1024 * 1024  # INFO lists every server of a cluster
_END = b"\r\n"
_MESSAGES = (b"HMSG ", b"MSG ")
_REPLIES = {4: False, 5: True}  # by the number of words: does the message have a reply subject?

#: sid, subject, reply (may be empty), headers (may be empty), data
OnMessage = Callable[[int, str, str, bytes, bytes], None]


class NatsProtocolError(ValueError):
    """The received bytes are not the NATS protocol."""


class ProtocolParser:
    """Parses received bytes; a message may arrive in any number of pieces."""

    __slots__ = ("_buffer", "_needed", "_on_message")

    def __init__(self, on_message: OnMessage) -> None:
        self._on_message = on_message
        self._buffer = bytearray()
        self._needed = 0  # bytes required to complete the next message

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Deliver every complete message, and yield control lines in their order between messages.

        Raises NatsProtocolError. Must be iterated to its end.
        """
        taken = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            taken = bytes(self._buffer)
            self._buffer.clear()
        end, at, on_message = len(taken), 0, self._on_message
        self._needed = 0
        while at < end:
            line_end = taken.find(_END, at, at + _LINE_BYTES_MAX)
            if line_end < 0:
                if end - at >= _LINE_BYTES_MAX:
                    raise NatsProtocolError("a line is too long")
                break
            begin = line_end + 2
            if taken.startswith(_MESSAGES, at):
                words = taken[at:line_end].split(b" ")  # other white space may be part of a subject
                headed = len(words[0]) == 4  # HMSG subject sid [reply] header-bytes bytes, or MSG without one
                try:
                    replies = _REPLIES[len(words) - headed]
                    sid, data_end = int(words[2]), begin + int(words[-1])
                    headers_end = begin + int(words[-2]) if headed else begin
                except (KeyError, ValueError):
                    raise NatsProtocolError(f"{taken[at : at + 40]!r} is not a message header") from None
                if not begin <= headers_end <= data_end:
                    raise NatsProtocolError(f"{taken[at : at + 40]!r} has invalid sizes")
            else:
                yield taken[at:begin]
                at = begin
                continue
            if data_end + 2 > end:
                self._needed = data_end + 2 - at
                break
            at = data_end + 2
            on_message(
                sid,
                words[1].decode("utf-8", "replace"),  # any bytes may be a subject
                words[3].decode("utf-8", "replace") if replies else "",
                taken[begin:headers_end],
                taken[headers_end:data_end],
            )
        self._buffer += taken[at:]

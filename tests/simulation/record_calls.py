"""Calls to owners as the record knows them: what was asked, and what was answered."""

from collections.abc import Mapping

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.messages import calls, chunks
from lorogo_protocol.messages import headers as h
from lorogo_transport.ports import Message
from tests.simulation.events import Answered, Asked

#: the calls whose answers promise something
_READ = frozenset({"patch", "revert", "import", "fork", "delete", "restore", "sync"})


class Calls:
    """Calls without an answer yet."""

    def __init__(self) -> None:
        self.waiting: dict[str, Asked] = {}  # by the inbox of the answer
        self._pieces: dict[str, dict[int, bytes]] = {}
        self._counts: dict[str, int] = {}

    def asked(self, number: int, at: float, line: str, message: Message) -> Asked | None:
        """Take one message to an owner."""
        _, _, verb, document = message.subject.split(".", 3)
        if verb not in _READ or not message.reply or message.headers.get(h.CHUNK_INDEX, "0") != "0":
            return None
        asked = Asked(number, at, line, document, verb, _body(message.data))
        self.waiting.setdefault(message.reply, asked)
        return asked

    def answered(self, number: int, at: float, line: str, message: Message) -> Answered | None:
        """Take one message of an answer; the answer, when it is whole."""
        inbox, headers = message.subject, message.headers
        asked = self.waiting[inbox]
        if (reason := headers.get(h.REASON)) is not None:
            return Answered(number, at, line, asked, reason, {})
        try:
            chunk = chunks.parse(headers, message.data)
        except MalformedMessage:
            return None
        if chunk.final and chunk.index == 0:
            return Answered(number, at, line, asked, "", _body(chunk.data))
        pieces = self._pieces.setdefault(inbox, {})
        pieces[chunk.index] = chunk.data
        if chunk.final:
            self._counts[inbox] = chunk.count
        if len(pieces) != self._counts.get(inbox):
            return None
        return Answered(number, at, line, asked, "", _body(b"".join(pieces[one] for one in sorted(pieces))))


def _body(data: bytes) -> Mapping[str, object]:
    try:
        return calls.decode(data)
    except MalformedMessage:
        return {}

"""The WAL as the record knows it: every update that was ever whole in it, and what is kept of refusals."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lorogo_protocol.errors import CrdtError, MalformedMessage
from lorogo_protocol.journal.records import Span
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Chunk
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.ports import StoredMessage
from tests.simulation.events import Update


@dataclass(slots=True)
class Unfinished:
    """Messages under one log id that are not one whole chunk."""

    opened: float  # when its first chunk was stored
    pieces: dict[int, bytes] = field(default_factory=dict)
    final: Chunk | None = None
    final_at: float = 0.0
    final_sequences: set[int] = field(default_factory=set)
    refusals: set[Reason] = field(default_factory=set)


class _Place(NamedTuple):
    """The message that is, or was last, at one sequence: a stream that lost its end uses sequences again."""

    number: int  # when it was stored
    log_id: str
    chunk: int  # its index


class Wal:
    """Updates by log id."""

    def __init__(self) -> None:
        self.updates: dict[tuple[str, str], list[Update]] = {}  # (document, log id); bytes may differ
        self.unfinished: dict[tuple[str, str], Unfinished] = {}
        self.present: dict[str, set[int]] = {}  # the sequences that a document has in the stream now
        self._by_id: dict[str, list[Update]] = {}
        self._by_sequence: dict[tuple[str, int], Update] = {}  # of a final or a completing chunk
        self._places: dict[tuple[str, int], _Place] = {}  # (document, sequence)
        # When something was last copied to loro-rejected: the message with a sequence, an update by log id.
        self._kept_messages: dict[tuple[str, int], int] = {}
        self._kept_updates: dict[tuple[str, str], int] = {}

    def find(self, log_id: str, digest_: str) -> Update | None:
        """The update that an answer is about."""
        for update in self._by_id.get(log_id, ()):
            if update.digest == digest_:
                return update
        return None

    def newest(self, document: str, log_id: str, digest_: str = "") -> Update | None:
        """The update of that name that was whole last; with a digest, the one that has it."""
        found = self.updates.get((document, log_id), ())
        return next((one for one in reversed(found) if not digest_ or one.digest == digest_), None)

    def at(self, document: str, sequence: int) -> Update | None:
        """The update that became whole with that sequence."""
        return self._by_sequence.get((document, sequence))

    def of(self, document: str, messages: Iterable[StoredMessage]) -> Iterable[Update]:
        """The updates that these messages belong to, as far as they were ever whole."""
        for log_id in dict.fromkeys(stored.headers.get(h.LOG_ID, "") for stored in messages):
            yield from self.updates.get((document, log_id), ())

    def all(self) -> Iterable[Update]:
        """Every update that was ever whole."""
        for found in self.updates.values():
            yield from found

    def stored(self, number: int, at: float, stored: StoredMessage, line: str) -> Update | None:
        """Take one message; the update that is whole with it."""
        document = subjects.document_of(stored.subject)
        self.present.setdefault(document, set()).add(stored.sequence)
        self._places[document, stored.sequence] = _Place(number, "", 0)
        try:
            chunk = chunks.parse(stored.headers, stored.data)
        except MalformedMessage:
            return None
        self._places[document, stored.sequence] = _Place(number, chunk.log_id, chunk.index)
        if chunk.final and chunk.index == 0 and chunk.count == 1:
            if chunk.digest and chunk.digest != digest(chunk.data):
                return None
            return self._whole(number, document, chunk, chunk.data, {stored.sequence}, line)
        return self._collect(number, at, document, chunk, stored.sequence, line)

    def removed(self, document: str, messages: Iterable[StoredMessage]) -> None:
        """These are not in the stream any more."""
        self.present.get(document, set()).difference_update(stored.sequence for stored in messages)

    def refused(self, log_id: str, reason: Reason) -> None:
        """A refusal was sent for an update that was never whole."""
        for (_, name), unfinished in self.unfinished.items():
            if name == log_id:
                unfinished.refusals.add(reason)

    def quarantined(self, number: int, stored: StoredMessage) -> None:
        """A copy is kept in loro-rejected; `number` is that of the newest event."""
        document, text = subjects.document_of(stored.subject), stored.headers.get(h.SEQUENCE, "")
        if text.isdigit():
            self._kept_messages[document, int(text)] = number
            if h.FINAL in stored.headers:
                self._kept_updates[document, stored.headers.get(h.LOG_ID, "")] = number

    def is_kept(self, document: str, sequence: int) -> bool:
        """True if the message was copied to loro-rejected since it was stored."""
        place = self._places.get((document, sequence))
        return place is not None and self._kept_messages.get((document, sequence), -1) >= place.number

    def was_given_up(self, update: Update, gone: Iterable[StoredMessage]) -> bool:
        """True if the update was copied to loro-rejected since the newest of these messages of it was stored.

        A message stored later begins to wait again.
        """
        key = (update.document, update.log_id)
        places = [self._places.get((update.document, stored.sequence)) for stored in gone]
        newest = max((one.number for one in places if one and one.log_id == update.log_id), default=0)
        return self._kept_updates.get(key, -1) >= newest

    def is_left(self, update: Update, gone: Iterable[StoredMessage]) -> bool:
        """True if the stream has a whole copy of the update without these messages."""
        left = self.present.get(update.document, set()) - {stored.sequence for stored in gone}
        return self._is_whole(update, left)

    def was_whole(self, update: Update, gone: Iterable[StoredMessage]) -> bool:
        """True if the stream had a whole copy of the update with these messages: a broker may lose some."""
        had = self.present.get(update.document, set()) | {stored.sequence for stored in gone}
        return self._is_whole(update, had)

    def _is_whole(self, update: Update, sequences: set[int]) -> bool:
        document = update.document
        indexes = {
            place.chunk
            for sequence in sequences
            if (place := self._places[document, sequence]).log_id == update.log_id
            and (place.chunk < update.chunks - 1 or self.at(document, sequence) is update)
        }
        return indexes.issuperset(range(update.chunks))

    def _collect(
        self, number: int, at: float, document: str, chunk: Chunk, sequence: int, line: str
    ) -> Update | None:
        key = (document, chunk.log_id)
        unfinished = self.unfinished.get(key)
        if unfinished is None:
            unfinished = self.unfinished[key] = Unfinished(at)
        unfinished.pieces[chunk.index] = chunk.data
        if chunk.final:
            unfinished.final, unfinished.final_at = chunk, at
            unfinished.final_sequences.add(sequence)
        final, pieces = unfinished.final, unfinished.pieces
        if final is None or any(index not in pieces for index in range(final.count)):
            return None
        payload = b"".join(pieces[index] for index in range(final.count))
        if final.digest and final.digest != digest(payload):
            return None
        return self._whole(number, document, final, payload, {*unfinished.final_sequences, sequence}, line)

    def _whole(
        self, number: int, document: str, final: Chunk, payload: bytes, sequences: set[int], line: str
    ) -> Update:
        update_digest = final.digest or digest(payload)
        update = self.newest(document, final.log_id, update_digest)
        if update is None:
            update = Update(document, final.log_id, update_digest, line, number, final.count, _spans(payload))
            self.updates.setdefault((document, final.log_id), []).append(update)
            self._by_id.setdefault(final.log_id, []).append(update)
        update.sequences |= sequences
        for sequence in sequences:
            self._by_sequence[document, sequence] = update
        return update


def _spans(payload: bytes) -> tuple[Span, ...] | None:
    try:
        return crdt.spans(payload)
    except CrdtError:
        return None

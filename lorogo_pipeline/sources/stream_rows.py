"""Assemble messages of the WAL into rows of complete updates. Pure.

A range of sequences may cut an update. An update belongs to the range in which it becomes complete: that of
its final chunk, unless another chunk arrived later. `RangeAssembler` takes the messages of a range in order
and returns the updates that become complete within it. `LookbackAssembler` resolves the `unfinished()` rest:
it receives the document's messages from before the range. So every update is in at least one range.

Memory is bounded: when incomplete updates hold too many bytes, the oldest are dropped, and the look-back
fetches them again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from lorogo_pipeline.tables.row_batches import Row
from lorogo_protocol.errors import CrdtError, MalformedMessage
from lorogo_protocol.limits import MIB
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.chunks import Assembled, AssemblyRejected, Chunk, ChunkAssembler, parse
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.ports import StoredMessage

HELD_BYTES_MAX = 128 * MIB  # of incomplete updates in one range
HELD_UPDATES_MAX = 4096
Key = tuple[str, str]  # document, log id
Identity = tuple[str, str, str]  # and digest


@dataclass(slots=True)
class PartialUpdate:
    """An update with only some of its chunks in this range."""

    document_id: str
    log_id: str
    final: "FinalChunk | None" = None


@dataclass(frozen=True, slots=True)
class FinalChunk:
    """Position and headers of a final chunk."""

    sequence: int
    time_ns: int
    digest: str
    count: int


class RowMaker:
    """Build the rows of one range."""

    def __init__(self, *, epoch: int, payload: bool) -> None:
        self._epoch = epoch
        self._payload = payload

    def update(self, document_id: str, log_id: str, payload: bytes, final: FinalChunk) -> Row:
        """Return the row of a complete update with the right digest."""
        row = self._row(document_id, "update", final.sequence, final.time_ns)
        row |= {"log_id": log_id, "digest": final.digest, "bytes": len(payload), "digest_ok": True}
        try:
            row["spans"] = [
                {"peer": str(peer), "first": first, "end": end} for peer, first, end in crdt.spans(payload)
            ]
        except CrdtError as error:
            row["problem"] = f"it does not decode: {error}"
        if self._payload:
            row["payload"] = payload
        return row

    def malformed(
        self, stored: StoredMessage, problem: str, *, log_id: str | None = None, digest: str | None = None
    ) -> dict[str, object]:
        """Return the row of a message outside of any update, or of an update that can never be complete."""
        row = self._row(subjects.document_of(stored.subject), "malformed", stored.sequence, stored.time_ns)
        return row | {"log_id": log_id, "digest": digest, "bytes": len(stored.data), "problem": problem}

    def refused(self, stored: StoredMessage, log_id: str, refusal: AssemblyRejected) -> Row:
        """Return the row of an update that every owner refuses."""
        problem = f"{refusal.reason}: {refusal.message}"
        row = self.malformed(stored, problem, log_id=log_id, digest=refusal.digest or None)
        if refusal.reason is Reason.DIGEST_MISMATCH:
            row["digest_ok"] = False
        return row

    def missing(self, opened: PartialUpdate, final: FinalChunk, problem: str) -> Row:
        """Return the row of an update with its final chunk but without some others."""
        row = self._row(opened.document_id, "malformed", final.sequence, final.time_ns)
        return row | {"log_id": opened.log_id, "digest": final.digest or None, "problem": problem}

    def _row(self, document_id: str, kind: str, sequence: int, time_ns: int) -> dict[str, object]:
        return {
            "document_id": document_id,
            "kind": kind,
            "accepted_at": time_ns // 1000,
            "accepted_ns": time_ns,
            "log": subjects.WAL_STREAM,
            "log_sequence": sequence,
            "epoch": self._epoch,
            "sequence": sequence,
        }


class RangeAssembler:
    """Assemble the updates that become complete within a range of the WAL."""

    def __init__(
        self,
        rows: RowMaker,
        *,
        held_bytes_max: int = HELD_BYTES_MAX,
        held_updates_max: int = HELD_UPDATES_MAX,
    ) -> None:
        self._rows = rows
        self._assembler = ChunkAssembler(
            unfinished_bytes_max=held_bytes_max, unfinished_updates_max=held_updates_max
        )
        self._open: dict[Key, PartialUpdate] = {}
        self.given: set[Identity] = set()

    def add(self, stored: StoredMessage) -> Row | None:
        """Take the next message; return a row if it completes an update or is malformed."""
        document_id = subjects.document_of(stored.subject)
        try:
            chunk = parse(stored.headers, stored.data)
        except MalformedMessage as error:
            return self._rows.malformed(stored, str(error))
        key = (document_id, chunk.log_id)
        outcome = self._assembler.add(_named(chunk, key), sequence=stored.sequence, now=0.0)
        match outcome:
            case Assembled():
                opened = self._open.pop(key, None)
                final = _final(stored, chunk) or (opened.final if opened else None)
                assert final is not None
                return _once(self.given, self._rows, key, outcome.payload, final)
            case AssemblyRejected(reason=reason) if reason is not Reason.CHUNK_MISSING:
                self._open.pop(key, None)
                return self._rows.refused(stored, chunk.log_id, outcome)
            case _:  # incomplete, or dropped for lack of memory: the look-back decides
                _note(self._open, key, stored, chunk)
                return None

    def unfinished(self) -> Iterator[tuple[str, dict[str, PartialUpdate]]]:
        """At the end of the range: yield by document the updates that need a look-back."""
        whole = {identity[:2] for identity in self.given}
        by_document: dict[str, dict[str, PartialUpdate]] = {}
        for key, opened in self._open.items():
            if opened.final is None and key in whole:
                continue  # a second copy of a complete update
            by_document.setdefault(key[0], {})[key[1]] = opened
        yield from by_document.items()


class LookbackAssembler:
    """Complete updates that the begin of a range cut, from the document's earlier messages."""

    def __init__(
        self, rows: RowMaker, opens: dict[str, PartialUpdate], given: set[Identity], *, first: int
    ) -> None:
        self._rows = rows
        self._opens = dict(opens)
        self._given = given
        self._first = first  # of the range
        self._assembler = ChunkAssembler()
        self._seen: dict[str, set[int]] = {}
        self._finals: dict[str, FinalChunk] = {}
        self._refusals: dict[str, tuple[StoredMessage, AssemblyRejected]] = {}
        self._before: set[tuple[str, str]] = set()  # log id, digest: complete before the range

    @property
    def open_finals(self) -> dict[str, PartialUpdate]:
        """Unresolved updates with their final chunk in the range."""
        return {
            log_id: opened
            for log_id, opened in self._opens.items()
            if opened.final is not None and (log_id, opened.final.digest) not in self._before
        }

    def add(self, stored: StoredMessage) -> Row | None:
        """Take the document's next message; return a row if it completes an update within the range."""
        try:
            chunk = parse(stored.headers, stored.data)
        except MalformedMessage:
            return None  # the range of the message has a row for it
        log_id = chunk.log_id
        if log_id not in self._opens:
            return None
        self._seen.setdefault(log_id, set()).add(chunk.index)
        if (final := _final(stored, chunk)) is not None:
            self._finals[log_id] = final
        match self._assembler.add(chunk, sequence=stored.sequence, now=0.0):
            case Assembled(payload=payload, digest=digest):
                if stored.sequence < self._first:
                    self._before.add((log_id, digest))
                    return None
                key = self._opens.pop(log_id).document_id, log_id
                return _once(self._given, self._rows, key, payload, self._finals[log_id])
            case AssemblyRejected() as refusal:
                self._refusals[refusal.log_id] = stored, refusal
        return None

    def give_up(self) -> Iterator[Row]:
        """Yield a row for each update that stays incomplete."""
        for log_id, opened in self.open_finals.items():
            final = opened.final
            assert final is not None
            found = self._refusals.get(log_id)
            if found is not None and found[0].sequence >= self._first:
                yield self._rows.refused(found[0], log_id, found[1])
                continue
            there = sum(index < final.count for index in self._seen.get(log_id, ()))
            yield self._rows.missing(
                opened,
                final,
                f"incomplete: {there} of its {final.count} chunks are in the stream; "
                f"the others were purged, or never stored",
            )


def _named(chunk: Chunk, key: Key) -> Chunk:
    """Make the chunk's log id unique among documents; needed only for updates of several chunks."""
    if chunk.final and chunk.index == 0:
        return chunk
    name = f"{key[0]} {key[1]}"
    return Chunk(
        name, chunk.index, chunk.data, chunk.final, chunk.count, chunk.digest, chunk.inbox, chunk.again
    )


def _final(stored: StoredMessage, chunk: Chunk) -> FinalChunk | None:
    if not chunk.final:
        return None
    return FinalChunk(stored.sequence, stored.time_ns, chunk.digest, chunk.count)


def _note(opens: dict[Key, PartialUpdate], key: Key, stored: StoredMessage, chunk: Chunk) -> None:
    opened = opens.setdefault(key, PartialUpdate(*key))
    opened.final = _final(stored, chunk) or opened.final


def _once(given: set[Identity], rows: RowMaker, key: Key, payload: bytes, final: FinalChunk) -> Row | None:
    """Return the row of an update, once per range: clients resend updates without ACK."""
    identity = (*key, final.digest)
    if identity in given:
        return None
    given.add(identity)
    return rows.update(*key, payload, final)

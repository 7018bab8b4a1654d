"""(8) A purge never passes the safe sequence.

What is purged from the WAL is in the stored snapshot at that moment (or was, when the broker lost that
snapshot), or was refused for good, or another whole copy of it stays in the WAL. So updates that wait for
chunks or for what they build on are not purged: one that was copied to `loro-rejected` and came again after
that waits again. With a tombstone stored, everything may go. What is deleted one by one has its copy in
`loro-rejected` before.

An update that Loro reads, in one message, is judged to the letter. One in several messages is judged once
an owner accepted it: an owner may have dropped its chunks before, and the sender sends all of them again.
What is left of one whose other messages the broker lost may go: no owner can make it whole, and a journal
has it. One that never became whole may go when its time is over: chunks have `grace_seconds` after the final
one, and `unfinished_seconds` without it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from lorogo_protocol import limits
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.reasons import Reason
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record

_NOT_REFUSED = frozenset({Reason.MISSING_DEPENDENCIES, Reason.NOT_OWNER})  # it waits, or no owner judged it
_PACE = 0.99  # a clock may be a little too fast


class PurgesAreSafe:
    name = "purged"
    wants: Kinds = (ev.WalRemoved, ev.StatusStored)

    def __init__(
        self, record: "Record", *, unfinished_seconds: float, ahead: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._record = record
        self._ahead = ahead
        self._unfinished_seconds = unfinished_seconds
        self._taken: dict[str, float] = {}  # when a server last took the document

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.StatusStored(document=document, entry=entry, at=at):
                if entry.server and not entry.lease:
                    self._taken[document] = at
            case ev.WalRemoved(how="delete"):
                self._deleted(event)
            case ev.WalRemoved():
                self._purged(event)
            case _:
                pass

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""

    def _deleted(self, event: ev.WalRemoved) -> None:
        head = self._record.snapshots.heads.get(event.document)
        if head is not None and head.facts.erased_ns:
            return
        for stored in event.messages:
            if not self._record.wal.is_kept(event.document, stored.sequence):
                words = f"{event.line} deleted message {stored.sequence} without a copy in loro-rejected"
                raise Violation(self.name, words, event.document)

    def _purged(self, event: ev.WalRemoved) -> None:
        document, snapshots = event.document, self._record.snapshots
        head, lost = snapshots.heads.get(document), snapshots.before_loss.get(document)
        if head is not None and head.facts.deleted:
            return
        stored = [one.ends for one in (head, lost) if one is not None and one.ends is not None]
        wal = self._record.wal
        for update in wal.of(document, event.messages):
            if (
                not update.spans
                or update.refusals - _NOT_REFUSED
                or wal.was_given_up(update, event.messages)
                or any(ev.covers(ends, update.spans) for ends in stored)
            ):
                continue
            if update.chunks > 1 and not (update.accepted or update.acked):
                continue
            if wal.is_left(update, event.messages):
                continue  # it was sent again, and that copy is still there
            if not wal.was_whole(update, event.messages):
                continue  # the broker had lost the rest of it
            where = f"which the stored snapshot ({'none' if head is None else head.revision}) does not hold"
            raise Violation(self.name, f"{event.line} purged {update.words}, {where}", document)
        for log_id in {one.headers.get(h.LOG_ID, "") for one in event.messages}:
            self._unfinished(event, log_id)

    def _unfinished(self, event: ev.WalRemoved, log_id: str) -> None:
        """Check that incomplete chunks are not purged while the owner, who received all of them, waits."""
        wal, key = self._record.wal, (event.document, log_id)
        waiting = wal.unfinished.get(key)
        if waiting is None or key in wal.updates or waiting.refusals:
            return
        if waiting.opened <= self._taken.get(event.document, 0.0) or self._ahead(event.line):
            return  # the age of a message read from the stream depends on two wall clocks
        if waiting.final is not None and len(waiting.pieces) >= waiting.final.count:
            return  # all chunks are there, and it is nothing: refused at once
        since, patience = waiting.opened, self._unfinished_seconds
        if waiting.final is not None:
            since, patience = waiting.final_at, limits.CHUNK_GRACE_SECONDS
        if event.at - since < patience * _PACE:
            words = (
                f"{event.line} purged chunks of {log_id}, which is not whole, after {event.at - since:.1f} s"
            )
            raise Violation(self.name, words, event.document)

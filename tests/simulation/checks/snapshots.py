"""(7) A stored snapshot never goes back.

What takes the place of a snapshot holds every operation that it held (an erasure excepted), and has no
lower generation and no lower token. The bytes of the current snapshot stay. After the
broker lost a snapshot, whatever comes is the first; tokens of a lost status bucket are compared with none
that came after.
"""

from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record


class SnapshotsGoForward:
    name = "snapshots"
    wants: Kinds = (ev.SnapshotStored, ev.ChunksRemoved, ev.Lost)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._old: set[int] = set()  # tokens of a bucket that is gone

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.SnapshotStored(before=ev.Head() as before, head=head, line=line):
                self._compare(before, head, line)
            case ev.SnapshotStored(head=head, line=line) if head.ends is None:
                raise Violation(self.name, f"{line} stored a snapshot that is not whole", head.document)
            case ev.ChunksRemoved(nuid=nuid, line=line):
                if (current := self._record.snapshots.named(nuid)) is not None:
                    words = f"{line} removed the bytes of the current snapshot, revision {current.revision}"
                    raise Violation(self.name, words, current.document)
            case ev.Lost(stream=subjects.STATUS_STREAM):
                self._old.update(self._record.tokens)
            case _:
                pass

    def _compare(self, before: ev.Head, head: ev.Head, line: str) -> None:
        document = head.document
        if head.ends is None:
            raise Violation(self.name, f"{line} stored a snapshot that is not whole", document)
        old, new = before.facts, head.facts
        if new.generation < old.generation:
            words = f"{line} stored generation {new.generation} over {old.generation}"
            raise Violation(self.name, words, document)
        if new.lease < old.lease and old.lease not in self._old:
            raise Violation(self.name, f"{line} stored token {new.lease} over {old.lease}", document)
        if new.erased_ns or before.ends is None:
            return
        behind = [
            f"{peer}: {head.ends.get(peer, 0)} over {end}"
            for peer, end in before.ends.items()
            if head.ends.get(peer, 0) < end
        ]
        if behind:
            words = f"{line} stored a snapshot that lacks what it replaced: {'; '.join(behind)}"
            raise Violation(self.name, words, document)

    async def at_rest(self, world: Rest) -> None:
        """All checks were made at the events."""

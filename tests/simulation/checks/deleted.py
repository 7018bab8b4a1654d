"""(6) Nothing deleted comes back.

A tombstone is stored only after a request to delete. From then on the document's metadata stay a tombstone,
until a requested restore raised the generation; an erased document stays erased. After a deletion was
answered the owner returns no content. At the end a fresh load finds the document deleted; also if the broker
lost the tombstone after the deletion was answered, as long as no client opened the document before it was
stored again. If one did, the document has a new incarnation, which may be stored over the old
tombstone when a journal has restored that. A deletion ends what its owner knew: an ACKed update that the
deleted content lacks, since NATS had lost it, lives when its journal returns (docs/decisions/0023).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lorogo_protocol.messages import subjects
from tests.simulation import events as ev
from tests.simulation.checks.checker import Kinds, Rest, Violation

if TYPE_CHECKING:
    from tests.simulation.record import Record


@dataclass(slots=True)
class _Death:
    """A document that is deleted."""

    generation: int
    lease: int
    erased: bool
    deleted_ns: int
    answered: int = 0  # when a deletion was first answered; 0: it was not yet
    lost: bool = False  # the broker lost the tombstone
    outlived: bool = False  # it was lost before, and the document opened since: it is brought back
    ends: Mapping[int, int] = field(default_factory=dict)  # of the deleted content


class DeletedStaysDeleted:
    name = "deleted"
    wants: Kinds = (ev.SnapshotStored, ev.StatusStored, ev.Asked, ev.Answered, ev.Lost)

    def __init__(self, record: "Record") -> None:
        self._record = record
        self._dead: dict[str, _Death] = {}
        self._restores: dict[str, set[int]] = {}  # that were requested, and not answered with success
        self._unwanted: set[str] = set()  # documents with a request to delete
        self._outlived: set[tuple[str, int, int]] = set()  # deletions: document, generation, time

    def look(self, event: ev.Event) -> None:
        match event:
            case ev.SnapshotStored(head=head):
                self._stored(event, head)
            case ev.Asked(verb="restore", document=document, number=number):
                self._restores.setdefault(document, set()).add(number)
            case ev.Asked(verb="delete", document=document):
                self._unwanted.add(document)
            case ev.Answered(reason="") as answered:
                self._answered(answered)
            case ev.StatusStored(document=document, entry=entry):
                death = self._dead.get(document)
                if death is not None and death.lost and entry.server and not entry.lease:
                    del self._dead[document]  # it has a new incarnation, which is reported to an operator
                    self._outlived.add((document, death.generation, death.deleted_ns))
            case ev.Lost(stream=subjects.SNAPSHOT_STREAM, documents=documents):
                self._lost(documents)
            case _:
                pass

    def _stored(self, event: ev.SnapshotStored, head: ev.Head) -> None:
        facts, death = head.facts, self._dead.get(head.document)
        if facts.deleted:
            if head.document not in self._unwanted:
                raise Violation(self.name, f"{event.line} deleted without a request", head.document)
            known = death or _Death(facts.generation, facts.lease, False, facts.deleted_ns)
            if known.erased and (not facts.erased_ns or head.size):
                raise Violation(self.name, f"{event.line} stored what was erased", head.document)
            known.erased, known.lost = facts.erased_ns > 0, False
            known.generation, known.deleted_ns = facts.generation, facts.deleted_ns
            known.ends = facts.ends or known.ends
            known.outlived = (head.document, facts.generation, facts.deleted_ns) in self._outlived
            self._dead[head.document] = known
            return
        if death is None or death.lost:
            return
        if death.erased:
            raise Violation(self.name, f"{event.line} stored a life over an erasure", head.document)
        if facts.generation <= death.generation:
            words = f"{event.line} stored a snapshot of generation {facts.generation} over the tombstone"
            raise Violation(self.name, words, head.document)
        wanted = (
            self._restores.get(head.document) or death.outlived or self._lacks_acked(head.document, death)
        )
        if not wanted:
            raise Violation(self.name, f"{event.line} restored without a request", head.document)
        del self._dead[head.document]
        self._outlived.add((head.document, death.generation, death.deleted_ns))

    def _lacks_acked(self, document: str, death: _Death) -> bool:
        """Return True if the deleted content lacks an ACKed update."""
        return any(
            update.document == document and update.acked and not ev.covers(death.ends, update.spans or ())
            for update in self._record.wal.all()
        )

    def _answered(self, answered: ev.Answered) -> None:
        asked = answered.asked
        death = self._dead.get(asked.document)
        if asked.verb == "delete" and death is not None:
            death.answered = death.answered or answered.number
            death.outlived = False  # a call requests it now
            self._outlived.discard((asked.document, death.generation, death.deleted_ns))
        if asked.verb == "restore":
            self._restores.get(asked.document, set()).discard(asked.number)
        if asked.verb != "sync" or death is None or death.lost or not death.answered:
            return
        lease = answered.facts.get("lease")
        # A former owner may still publish: its token shows that.
        if asked.number > death.answered and isinstance(lease, int) and lease >= death.lease:
            words = f"{answered.line} answered a sync with content after the deletion was answered"
            raise Violation(self.name, words, asked.document)

    def _lost(self, documents: frozenset[str]) -> None:
        for document in documents & self._dead.keys():
            death = self._dead[document]
            death.lost = True
            if not death.answered:
                del self._dead[document]  # no disk of ours need have it

    async def at_rest(self, world: Rest) -> None:
        for document, death in self._dead.items():
            loaded = await self._record.fresh(world, document)
            if not loaded.intake.deleted:
                raise Violation(self.name, "it was deleted, and a fresh load finds it alive", document)
            if death.erased and loaded.snapshot is not None and loaded.snapshot.size:
                raise Violation(self.name, "it was erased, and its content is stored", document)

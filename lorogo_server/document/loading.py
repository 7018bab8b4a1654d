"""Loading a document: the stored snapshot, then every message of its subject that is still in the WAL.

The snapshot's own sequence is not used to skip messages: after a loss, JetStream uses sequences again,
so a skipped message might be a new one. What the snapshot covers is applied again, to no effect.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, Version
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import NOWHERE, Position
from lorogo_server.intake import history
from lorogo_server.intake.admission import admit
from lorogo_server.intake.follower import WalFollower
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import Accepted, Again, Effect, Intake, Poisoned, RefusedUpdate
from lorogo_server.sandbox.batch_validation import BatchValidation, validate_ahead
from lorogo_server.sandbox.child_process import Merge
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate, skip_validation
from lorogo_server.settings import ServerSettings
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.clock import Clock
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import StoredMessage, Stream, Transport
from lorogo_transport.stores.snapshots import SnapshotHead, SnapshotStore
from lorogo_transport.tasks import together
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SLICE_SECONDS = 0.01  # of loading, before others get a turn
_WAITING_NS = 120 * 1_000_000_000  # a sender of something older has given up
_LAGGING_TRIES = 20
_APART_NS = 3600 * 10**9  # clocks of servers and NATS
_LAGGING_SECONDS = 0.25


class DocumentLoadFailed(LorogoError):
    """The document could not be loaded; says what is damaged or missing."""

    code = "load-failed"


class TombstoneLost(LorogoError):
    """NATS has lost the tombstone of a document that we know as deleted; journals bring it back."""

    code = "tombstone-lost"


@dataclass(frozen=True, slots=True)
class Base:
    """The snapshot that a document was loaded from."""

    content: bytes
    digest: str
    version: Version


@dataclass(slots=True)
class Loaded:
    """A document as it stands in snapshot and WAL."""

    intake: Intake
    follower: WalFollower
    snapshot: SnapshotHead | None
    facts: SnapshotMetadata
    unanswered: list[Effect] = field(default_factory=list)  # whose senders may still wait
    base: Base | None = None  # the snapshot, until it is journalled
    replayed: list[Accepted] = field(default_factory=list)  # from the WAL, until they are journalled
    poison: list[Poisoned] = field(default_factory=list)


async def load(
    transport: Transport,
    snapshots: SnapshotStore,
    document_id: str,
    settings: ServerSettings,
    clock: Clock,
    *,
    epoch: int,
    checked: bool = False,
    covered: Position = NOWHERE,
    accepted: Position = NOWHERE,
    validate: ValidateUpdate = skip_validation,
    batch_validation: BatchValidation | None = None,
    merge: Merge | None = None,
    until_ns: int | None = None,
    through: int | None = None,
) -> Loaded:
    """The document, up to the WAL's last message when we asked. Raises LoadFailed, TransportError.

    `until_ns`: without what the WAL stored later. `through`: without what has a higher sequence.

    `foretaste`: tastes many updates together; `taste` judges each that it did not find fine.

    What is `covered` is not journalled again; what our journal has was `accepted`, and is not refused on
    a taster's suspicion.

    `checked`: a document that was loaded before made Loro panic later, when it was exported. Then
    every update is tried by an export of its own, which finds the forged one (docs/decisions/0004).
    """
    skip: set[int] = set()
    refused: list[Effect] = []
    while True:
        try:
            loaded = await _load_once(
                transport,
                snapshots,
                document_id,
                settings,
                clock,
                skip,
                epoch=epoch,
                checked=checked,
                covered=covered,
                accepted=accepted,
                validate=validate,
                batch_validation=batch_validation,
                merge=merge,
                until_ns=until_ns,
                through=through,
            )
        except CrdtPanic as error:
            if checked:
                raise DocumentLoadFailed(f"Loro cannot hold this document: {error}") from error
            checked = True
            continue
        if not loaded.poison:
            loaded.unanswered += refused
            return loaded
        for effect in loaded.poison:  # Loro panicked: begin again without that update
            refused.append(effect.refused)
            skip.update(effect.refused.sequences)


async def _load_once(
    transport: Transport,
    snapshots: SnapshotStore,
    document_id: str,
    settings: ServerSettings,
    clock: Clock,
    skip: set[int],
    *,
    epoch: int,
    checked: bool,
    covered: Position,
    accepted: Position,
    validate: ValidateUpdate,
    batch_validation: BatchValidation | None,
    merge: Merge | None,
    until_ns: int | None,
    through: int | None,
) -> Loaded:
    # Both are asked at once. What the WAL gets after its answer is heard, since a host listens already
    # (docs/decisions/0002); a snapshot that is stored after we asked for it makes our claim fail.
    wal = transport.stream(subjects.WAL_STREAM)
    head, newest = await together(snapshots.head(document_id), wal.last(subjects.wal(document_id)))
    facts = SnapshotMetadata() if head is None else SnapshotMetadata.parse(head.facts)
    lazy = not checked  # when checked, every update must show what it does to the state
    replica = Replica(lazy=lazy)
    base = None
    if head is not None and head.size and not facts.deleted:
        data = await snapshots.get(head, bytes_max=settings.snapshot_bytes_max)
        replica = Replica.from_snapshot(data, lazy=lazy)
        base = Base(data, digest(data), replica.version())
    intake = Intake(
        replica,
        History(history.decode(facts.dated)),
        settings,
        head=facts.position if facts.position.epoch == epoch else Position(epoch),  # else of a lost stream
        deleted=facts.deleted,
        sandboxed=validate is not skip_validation,
        merge=merge,
    )
    intake.erased = facts.erased_ns > 0
    intake.stored_bytes = 0 if base is None else len(base.content)
    loaded = Loaded(intake, WalFollower(epoch), head, facts, base=base)
    young_ns = clock.wall_ns() - _WAITING_NS

    async def note(effect: Effect, time_ns: int) -> None:
        if isinstance(effect, Accepted) and effect.new and not covered.includes(effect.position):
            loaded.replayed.append(effect)
        match effect:
            case Poisoned():
                loaded.poison.append(effect)
            case RefusedUpdate():
                loaded.unanswered.append(effect)
            case Accepted() | Again() if time_ns >= young_ns:
                loaded.unanswered.append(effect)
            case _:
                pass

    if newest is not None:
        await _read_through(
            newest,
            wal,
            document_id,
            loaded,
            clock,
            note,
            skip,
            checked=checked,
            accepted=accepted,
            validate=validate,
            batch_validation=batch_validation,
            until_ns=until_ns,
            through=through,
        )
    replica.lazy = True
    intake.go_live()
    return loaded


async def claim(snapshots: SnapshotStore, document_id: str, loaded: Loaded, *, token: int, term: str) -> bool:
    """Put this owner's lease token and term on the stored snapshot; False if another was stored since.

    A previous owner may be about to store a snapshot or a tombstone. From here on its compare-and-swap fails,
    so nothing comes between what was loaded and what the next owner loads.
    """
    facts = loaded.facts.claimed(term, token)
    try:
        loaded.snapshot = await snapshots.put_facts_on(loaded.snapshot, document_id, facts.render())
    except WrongLastSequence:
        return False
    loaded.facts = facts
    return True


async def read_on(
    wal: Stream,
    document_id: str,
    loaded: Loaded,
    clock: Clock,
    act: Callable[[Effect, int], Awaitable[None]],
    skip: set[int] | None = None,
    *,
    checked: bool = False,
    accepted: Position = NOWHERE,
    validate: ValidateUpdate = skip_validation,
    batch_validation: BatchValidation | None = None,
    bytes_max: int | None = None,
) -> None:
    """Take everything after the follower's position, until what the leader says is the last.

    `bytes_max`: or until about so many bytes are taken.

    `act` is told every effect, with the time at which the stream stored its message. Ends early
    after a Poisoned effect: the replica must not be used any more. A journal has the updates up to
    `accepted`.
    """
    newest = await wal.last(subjects.wal(document_id))
    if newest is not None:
        await _read_through(
            newest,
            wal,
            document_id,
            loaded,
            clock,
            act,
            skip,
            checked=checked,
            accepted=accepted,
            validate=validate,
            batch_validation=batch_validation,
            bytes_max=bytes_max,
        )


async def _read_through(
    newest: StoredMessage,
    wal: Stream,
    document_id: str,
    loaded: Loaded,
    clock: Clock,
    act: Callable[[Effect, int], Awaitable[None]],
    skip: set[int] | None,
    *,
    checked: bool,
    accepted: Position,
    validate: ValidateUpdate,
    batch_validation: BatchValidation | None,
    bytes_max: int | None = None,
    until_ns: int | None = None,
    through: int | None = None,
) -> None:
    """As `read_on`, up to a message that the leader named, or to the first after `until_ns` or `through`."""
    subject = subjects.wal(document_id)
    turn_ends = clock.now() + _SLICE_SECONDS
    seen_max = None if bytes_max is None else loaded.intake.seen_bytes + bytes_max
    # What the stream's times are by our own clock. The two may be apart: the newest is not of the future, and
    # what is younger than that is given its time anew, or chunks that have just come would be too late.
    early = max(clock.wall_ns() - _APART_NS, newest.time_ns) / 1e9 - clock.now()
    for _ in range(_LAGGING_TRIES):
        unread = wal.read(subject, first=loaded.follower.position.sequence + 1, last=newest.sequence)
        async for stored, fine in validate_ahead(unread, batch_validation):
            if until_ns is not None and stored.time_ns > until_ns:
                return
            if through is not None and stored.sequence > through:
                return
            here = loaded.follower.at(stored)
            if not loaded.facts.cutoff.includes(here) and (skip is None or stored.sequence not in skip):
                when = min(clock.now(), stored.time_ns / 1e9 - early)
                known, intake = accepted.includes(here), loaded.intake
                for taken in await admit(
                    intake, stored, when, validate=validate, accepted=known, validated=fine
                ):
                    effect = _tried(loaded.intake.replica, taken) if checked else taken
                    await act(effect, stored.time_ns)
                    if isinstance(effect, Poisoned):
                        return
            loaded.follower.took(here)
            if seen_max is not None and loaded.intake.seen_bytes >= seen_max:
                return
            if clock.now() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock.now() + _SLICE_SECONDS
        if loaded.follower.position.sequence >= newest.sequence:
            return
        if await wal.get(newest.sequence) is None:  # purged or deleted meanwhile; others may be before it
            again = await wal.last(subject)
            if again is None or again.sequence <= loaded.follower.position.sequence:
                return
            newest = again
        await asyncio.sleep(_LAGGING_SECONDS)  # a lagging replica answered: ask again
    raise DocumentLoadFailed(f"the WAL of {document_id} ends before its last sequence, {newest.sequence}")


def _tried(replica: Replica, effect: Effect) -> Effect:
    """The effect itself, or Poisoned if the document cannot be exported any more since that update."""
    if not isinstance(effect, Accepted):
        return effect
    try:
        replica.fork()
    except CrdtPanic as error:
        update = effect.update
        why = f"the document could not be exported with it: {error}"
        log.warning("a forged update was accepted before it was found out", log_id=update.log_id, problem=why)
        return Poisoned(
            RefusedUpdate(
                update.log_id,
                update.digest,
                update.inbox,
                Reason.INVALID_UPDATE,
                why,
                update.sequences,
                quarantine=True,
            )
        )
    return effect

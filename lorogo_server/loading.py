"""Loading a document: the stored snapshot, then every message of its subject that is still in the WAL.

The snapshot's own sequence is not used to skip messages: after a loss, JetStream uses sequences again,
so a skipped message might be a new one. What the snapshot covers is applied again, to no effect.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from lorogo_protocol import subjects
from lorogo_protocol.crdt import CrdtPanic, Replica
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.reasons import Reason
from lorogo_server import history
from lorogo_server.facts import SnapshotFacts
from lorogo_server.following import Follower
from lorogo_server.history import History
from lorogo_server.intake import Accepted, Again, Effect, Intake, Poisoned, Refused
from lorogo_server.settings import ServerSettings
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.snapshots import SnapshotHead, SnapshotStore

log = structlog.get_logger(__name__)

_SLICE_SECONDS = 0.01  # of loading, before others get a turn
_WAITING_NS = 120 * 1_000_000_000  # a sender of something older has given up
_LAGGING_TRIES = 20
_LAGGING_SECONDS = 0.25


class LoadFailed(LorogoError):
    """The document could not be loaded; says what is damaged or missing."""

    code = "load-failed"


@dataclass(slots=True)
class Loaded:
    """A document as it stands in snapshot and WAL."""

    intake: Intake
    follower: Follower
    snapshot: SnapshotHead | None
    facts: SnapshotFacts
    unanswered: list[Effect] = field(default_factory=list)  # whose senders may still wait
    poison: list[Poisoned] = field(default_factory=list)


async def load(
    transport: Transport,
    snapshots: SnapshotStore,
    document_id: str,
    settings: ServerSettings,
    clock: Clock,
    *,
    checked: bool = False,
) -> Loaded:
    """The document, up to the WAL's last message when we asked. Raises LoadFailed, TransportError.

    `checked`: a document that was loaded before made Loro panic later, when it was exported. Then
    every update is tried by an export of its own, which finds the forged one (docs/decisions/0004).
    """
    skip: set[int] = set()
    refused: list[Effect] = []
    while True:
        try:
            loaded = await _load_once(transport, snapshots, document_id, settings, clock, skip, checked)
        except CrdtPanic as error:
            if checked:
                raise LoadFailed(f"Loro cannot hold this document: {error}") from error
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
    checked: bool,
) -> Loaded:
    head = await snapshots.head(document_id)
    facts = SnapshotFacts() if head is None else SnapshotFacts.parse(head.facts)
    lazy = not checked  # when checked, every update must show what it does to the state
    replica = Replica(lazy=lazy)
    if head is not None and not facts.deleted:
        data = await snapshots.get(head, bytes_max=settings.snapshot_bytes_max)
        replica = Replica.from_snapshot(data, lazy=lazy)
    intake = Intake(
        replica,
        History(history.decode(facts.dated)),
        settings,
        head=facts.sequence,
        deleted=facts.deleted,
    )
    loaded = Loaded(intake, Follower(), head, facts)
    young_ns = clock.wall_ns() - _WAITING_NS

    async def note(effect: Effect, time_ns: int) -> None:
        match effect:
            case Poisoned():
                loaded.poison.append(effect)
            case Refused():
                loaded.unanswered.append(effect)
            case Accepted() | Again() if time_ns >= young_ns:
                loaded.unanswered.append(effect)
            case _:
                pass

    wal = transport.stream(subjects.WAL_STREAM)
    await read_on(wal, document_id, loaded, clock, note, skip, checked=checked)
    replica.lazy = True
    return loaded


async def read_on(
    wal: Stream,
    document_id: str,
    loaded: Loaded,
    clock: Clock,
    act: Callable[[Effect, int], Awaitable[None]],
    skip: set[int] | None = None,
    *,
    checked: bool = False,
) -> None:
    """Take everything after the follower's position, until what the leader says is the last.

    `act` is told every effect, with the time at which the stream stored its message. Ends early
    after a Poisoned effect: the replica must not be used any more.
    """
    subject = subjects.wal(document_id)
    newest = await wal.last(subject)
    if newest is None:
        return
    turn_ends = clock.now() + _SLICE_SECONDS
    for _ in range(_LAGGING_TRIES):
        async for stored in wal.read(subject, first=loaded.follower.position + 1, last=newest.sequence):
            if skip is None or stored.sequence not in skip:
                for taken in loaded.intake.take(stored, clock.now()):
                    effect = _tried(loaded.intake.replica, taken) if checked else taken
                    await act(effect, stored.time_ns)
                    if isinstance(effect, Poisoned):
                        return
            loaded.follower.took(stored.sequence, stored.time_ns)
            if clock.now() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock.now() + _SLICE_SECONDS
        if loaded.follower.position >= newest.sequence:
            return
        if await wal.get(newest.sequence) is None:  # purged or deleted meanwhile
            return
        await asyncio.sleep(_LAGGING_SECONDS)  # a lagging replica answered: ask again
    raise LoadFailed(f"the WAL of {document_id} ends before its last sequence, {newest.sequence}")


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
            Refused(
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

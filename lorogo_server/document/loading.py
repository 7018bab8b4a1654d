"""Loads a document: the stored snapshot, then every message of its subject that is still in the WAL.

The snapshot's sequence skips no messages: after a loss, JetStream uses sequences again, so a skipped message
might be a new one. Importing what the snapshot has changes nothing.

A load applies updates in the order of their messages, then those with missing dependencies until nothing more
applies. The rest stays in the WAL, since it may be ACKed: the stream may have lost what it depends on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, Version
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import NOWHERE, Position
from lorogo_server.intake import history
from lorogo_server.intake.admission import admit, admit_early
from lorogo_server.intake.decisions import (
    Accepted,
    Again,
    Effect,
    Poisoned,
    RefusedUpdate,
)
from lorogo_server.intake.follower import WalFollower
from lorogo_server.intake.history import History
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.sandbox.child_process import Merge
from lorogo_server.sandbox.decode_sandbox import (
    DecodeSandbox,
    ValidateUpdate,
    skip_validation,
    validate_ahead,
)
from lorogo_server.settings import ServerSettings
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.clock import Clock
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import StoredMessage, Stream, Transport
from lorogo_transport.stores.snapshots import SnapshotHead, SnapshotStore
from lorogo_transport.tasks import together
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_SLICE_SECONDS = 0.01  # of a load, before other tasks run
_WAITING_NS = 120 * 1_000_000_000  # older updates have no waiting sender
_LAGGING_TRIES = 20
_APART_NS = 3600 * 10**9  # between the clocks of servers and NATS
_LAGGING_SECONDS = 0.25


class DocumentLoadFailed(LorogoError):
    """The document could not be loaded; the message names what is damaged or missing."""

    code = "load-failed"


class TombstoneLost(LorogoError):
    """NATS has lost the tombstone of a document that is deleted in memory; journals restore it."""

    code = "tombstone-lost"


@dataclass(frozen=True, slots=True)
class Base:
    """The snapshot that a document was loaded from."""

    content: bytes
    digest: str
    version: Version


@dataclass(slots=True)
class Loaded:
    """A document with all content of its stored snapshot and of the WAL."""

    intake: Intake
    follower: WalFollower
    snapshot: SnapshotHead | None
    facts: SnapshotMetadata
    unanswered: list[Effect] = field(default_factory=list)  # whose senders may still wait
    base: Base | None = None  # the snapshot, until it is journalled
    replayed: list[Accepted] = field(default_factory=list)  # from the WAL, until they are journalled
    poison: list[Poisoned] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Scope and means of a load.

    `checked`: try every update by an export of its own: one of them made Loro panic when the document was
    exported (docs/decisions/0004).
    """

    transport: Transport
    snapshots: SnapshotStore
    document_id: str
    settings: ServerSettings
    clock: Clock
    epoch: int
    checked: bool = False
    covered: Position = NOWHERE  # journalled: `Loaded.replayed` is without it
    accepted: Position = NOWHERE  # the local journal has the updates up to here: suspicion refuses none
    validate: ValidateUpdate = skip_validation
    batch_validation: DecodeSandbox | None = None  # of many updates together
    merge: Merge | None = None
    until_ns: int | None = None  # leave out what the WAL stored later
    through: int | None = None  # leave out what has a higher sequence

    @property
    def wal(self) -> Stream:
        return self.transport.stream(subjects.WAL_STREAM)


Act = Callable[[Effect, int], Awaitable[None]]  # an effect, and when the stream stored its message


async def load(request: LoadRequest) -> Loaded:
    """Return the document as of the WAL's last message at the call.

    Raises DocumentLoadFailed, CrdtError, TransportError.
    """
    skip: set[int] = set()
    refused: list[Effect] = []
    while True:
        try:
            loaded = await _load_once(request, skip)
        except CrdtPanic as error:
            if request.checked:
                raise DocumentLoadFailed(f"Loro cannot hold this document: {error}") from error
            request = replace(request, checked=True)
            continue
        if not loaded.poison:
            loaded.unanswered += refused
            return loaded
        for effect in loaded.poison:  # Loro panicked: begin again without that update
            refused.append(effect.refused)
            skip.update(effect.refused.sequences)


async def _load_once(request: LoadRequest, skip: set[int]) -> Loaded:
    document_id, snapshots, epoch = request.document_id, request.snapshots, request.epoch
    # Read both at once. The host has subscribed to messages that are stored after this reply
    # (docs/decisions/0002); a snapshot that is stored after this read makes the claim fail.
    head, newest = await together(snapshots.head(document_id), request.wal.last(subjects.wal(document_id)))
    facts = SnapshotMetadata() if head is None else SnapshotMetadata.parse(head.facts)
    lazy = not request.checked  # when checked, every update must show what it does to the state
    replica = Replica(lazy=lazy)
    base = None
    if head is not None and head.size and not facts.deleted:
        data = await snapshots.get(head, bytes_max=request.settings.snapshot_bytes_max)
        replica = Replica.from_snapshot(data, lazy=lazy)
        base = Base(data, digest(data), replica.version())
    intake = Intake(
        replica,
        History(history.decode(facts.dated)),
        request.settings,
        head=facts.position if facts.position.epoch == epoch else Position(epoch),  # else of a lost stream
        deleted=facts.deleted,
        sandboxed=request.validate is not skip_validation,
        merge=request.merge,
    )
    intake.erased = facts.erased_ns > 0
    intake.stored_bytes = 0 if base is None else len(base.content)
    loaded = Loaded(intake, WalFollower(epoch), head, facts, base=base)
    young_ns = request.clock.wall_ns() - _WAITING_NS

    async def note(effect: Effect, time_ns: int) -> None:
        if isinstance(effect, Accepted) and effect.new and not request.covered.includes(effect.position):
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
        await _read_whole(request, newest, loaded, note, skip)
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
        loaded.snapshot = await snapshots.put_facts(loaded.snapshot, document_id, facts.render())
    except WrongLastSequence:
        return False
    loaded.facts = facts
    return True


async def read_on(request: LoadRequest, loaded: Loaded, act: Act, *, bytes_max: int | None = None) -> None:
    """Process the messages behind the follower's position, up to the leader's last one.

    `bytes_max`: or about that many bytes. Ends early after a Poisoned effect: the replica must not be used.
    """
    newest = await request.wal.last(subjects.wal(request.document_id))
    if newest is None:
        return
    if loaded.intake.is_live:
        await _read_through(request, newest, loaded, act, set(), bytes_max)
    else:
        await _read_whole(request, newest, loaded, act, set())


async def _read_whole(
    request: LoadRequest, newest: StoredMessage, loaded: Loaded, act: Act, skip: set[int]
) -> None:
    """Read the subject, and apply early updates until nothing more applies; in bounded memory."""
    while await _read_through(request, newest, loaded, act, skip):
        async for effect, time_ns in admit_early(loaded.intake, request.clock):
            if await _poisons(request, loaded, effect, time_ns, act):
                return
        if not loaded.intake.needs_another_read:
            return
        loaded.follower.rewind(loaded.follower.position.epoch)
        loaded.intake.begin_again(loaded.follower.position.epoch)


async def _read_through(
    request: LoadRequest,
    newest: StoredMessage,
    loaded: Loaded,
    act: Act,
    skip: set[int],
    bytes_max: int | None = None,
) -> bool:
    """Read up to a message that the leader named, or to the limits; return False after a Poisoned effect."""
    document_id, clock, wal = request.document_id, request.clock, request.wal
    subject = subjects.wal(document_id)
    turn_ends = clock.now() + _SLICE_SECONDS
    seen_max = None if bytes_max is None else loaded.intake.seen_bytes + bytes_max
    # Offset of the stream's times to the local clock. The clocks may differ: the newest message is not of the
    # future, and a message counts as at most as old as that, else recent chunks would count as late.
    offset = max(clock.wall_ns() - _APART_NS, newest.time_ns) / 1e9 - clock.now()
    for _ in range(_LAGGING_TRIES):
        unread = wal.read(subject, first=loaded.follower.position.sequence + 1, last=newest.sequence)
        async for stored, fine in validate_ahead(unread, request.batch_validation):
            if request.until_ns is not None and stored.time_ns > request.until_ns:
                return True
            if request.through is not None and stored.sequence > request.through:
                return True
            here = loaded.follower.at(stored)
            if not loaded.facts.cutoff.includes(here) and stored.sequence not in skip:
                when = min(clock.now(), stored.time_ns / 1e9 - offset)
                effects = await admit(
                    loaded.intake,
                    stored,
                    when,
                    validate=request.validate,
                    accepted=request.accepted.includes(here),
                    validated=fine,
                )
                for effect in effects:
                    if await _poisons(request, loaded, effect, stored.time_ns, act):
                        return False
            loaded.follower.took(here)
            if seen_max is not None and loaded.intake.seen_bytes >= seen_max:
                return True
            if clock.now() >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock.now() + _SLICE_SECONDS
        if loaded.follower.position.sequence >= newest.sequence:
            return True
        if await wal.get(newest.sequence) is None:  # purged or deleted meanwhile; others may be before it
            again = await wal.last(subject)
            if again is None or again.sequence <= loaded.follower.position.sequence:
                return True
            newest = again
        await asyncio.sleep(_LAGGING_SECONDS)  # a lagging replica answered: read again
    raise DocumentLoadFailed(f"the WAL of {document_id} ends before its last sequence, {newest.sequence}")


async def _poisons(request: LoadRequest, loaded: Loaded, effect: Effect, time_ns: int, act: Act) -> bool:
    """Act on an effect; return True if Loro panicked on its update."""
    tried = _tried(loaded.intake.replica, effect) if request.checked else effect
    await act(tried, time_ns)
    return isinstance(tried, Poisoned)


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

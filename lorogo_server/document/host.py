"""One document on this server: loaded, followed, answered for, until it is given up.

    acquired ─▶ load (STARTING, renewed) ─▶ UP: follow, apply, accept, ACK ─▶ closed
                                                 ▲ rpc/endpoint.py: calls (rpc/methods.py), pings, presence
                                                 ▲ compaction/compaction_schedule.py: compaction
                                                 (compaction/compaction.py), unloading

What was heard and waits for its turn is in backlog.py, how it ends in shutdown.py.
The order of safety is in `_carry_out`: the message is stored (that is how we got it), the update is
applied, given to the journal and shown to everyone, and when it is on the disk ACKed to its sender.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping

from lorogo_protocol.errors import LorogoError, MalformedMessage
from lorogo_protocol.lease import Reclaim
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import subjects
from lorogo_server.context import ServerContext
from lorogo_server.document import wal_bounds
from lorogo_server.document.admission import admit
from lorogo_server.document.answers import Answers
from lorogo_server.document.backlog import Backlog, QueuedMessage
from lorogo_server.document.compaction_request import CompactionRequest
from lorogo_server.document.document_journal import Journalling
from lorogo_server.document.follower import AlreadyRead, MessageGap, NextMessage, UnclearPosition
from lorogo_server.document.intake import Accepted, Again, Effect, Poisoned, RefusedUpdate
from lorogo_server.document.loading import DocumentLoadFailed, Loaded, TombstoneLost, claim, load, read_on
from lorogo_server.document.shutdown import ClosedEarly, Shutdown
from lorogo_server.journal.disk_journal import JournalStopped
from lorogo_server.ownership.lease import Lease, LeaseLost
from lorogo_server.rpc.endpoint import DocumentEndpoint
from lorogo_server.sandbox.call_costs import Call, CallCosts, Size
from lorogo_server.snapshot_metadata import SnapshotMetadata
from lorogo_transport.errors import TransportError
from lorogo_transport.light import Event, Timer
from lorogo_transport.ports import Message, Subscription
from lorogo_transport.stores.republish import Republished, republished
from lorogo_transport.stores.snapshots import SnapshotHead
from lorogo_transport.stores.statuses import status_of
from lorogo_transport.tasks import Tasks, Work
from lorogo_transport.telemetry.logs import get_logger

_SLICE_SECONDS = 0.01  # of work on messages, before others get a turn
_CATCH_UP_WAIT_SECONDS = 0.5
_LOAD_TRIES = 5
_ROUND_BYTES_MAX = 16 * 1024 * 1024  # read of a flooded document before others may have it

Verbs = Callable[["Host", str, dict[str, object]], Awaitable[Mapping[str, object]]]


class Host:
    """The owner of one document."""

    __slots__ = (  # there are as many as open documents
        "__weakref__",
        "_answering",
        "_answers",
        "_backlog",
        "_catch_up",
        "_checked",
        "_copies",
        "_ending",
        "_heard_at",
        "_journalling",
        "_last_activity",
        "_lease",
        "_loaded",
        "_read_for",
        "_reload",
        "_rewind",
        "_subscriptions",
        "_tasks",
        "_timer",
        "_turning",
        "_verbs",
        "_visitors",
        "_wake",
        "busy",
        "closed",
        "compacting",
        "context",
        "costs",
        "document_id",
        "doubts_snapshot",
        "due",
        "editing",
        "incomplete",
        "log",
        "must_store",
        "recovering",
        "shared_calls",
        "since_ns",
        "started",
        "trace",
    )

    def __init__(self, document_id: str, context: ServerContext, verbs: Verbs, *, trace: str) -> None:
        self.document_id = document_id
        self.context = context
        self.trace = trace
        self.log = get_logger(__name__).bind(document=document_id, trace=trace)
        self.busy = asyncio.Lock()  # held while messages are taken, or the document changes as a whole
        self.compacting = asyncio.Lock()  # held while the stored snapshot is being replaced
        self.editing = asyncio.Lock()  # held by one server-made change at a time
        self.since_ns = context.clock.wall_ns()
        self.due = CompactionRequest(context.clock.now(), context.rng)
        self.costs = CallCosts()
        self.shared_calls: dict[tuple[object, ...], asyncio.Future[bytes]] = {}  # by what they ask, under way
        self.must_store = False  # the stream lost what we hold: it must be stored before we close
        self.doubts_snapshot = False  # the connection was lost: the stored one may be another's
        self.recovering = False  # waits for journals; nothing is loaded yet
        self.incomplete: tuple[str, ...] = ()  # absent journals that may hold more of it
        self._verbs = verbs
        self._lease: Lease | None = None
        self._answers: Answers | None = None
        self._journalling: Journalling | None = None
        self._visitors: DocumentEndpoint | None = None
        self._loaded: Loaded | None = None
        self._backlog = Backlog()
        self._heard_at = 0.0  # when what is being acted on was here
        self._catch_up = False  # a copy was dropped or missed
        self._read_for = 0  # the copy whose gap was to be read last
        self._rewind = False  # the epoch changed: read everything again
        self._reload = False
        self._checked = False
        self._turning = False  # messages are being taken just now
        self._wake = Event()
        self._timer = Timer(context.clock, self._wake.set)
        self._ending = Shutdown()
        self._answering = False
        self._copies: Subscription | None = None  # of the WAL; None: not yet, or there were too many
        self._subscriptions: list[Subscription] = []
        self._tasks = Tasks(self._background_failed)
        self._last_activity = context.clock.now()
        self.started = Event()  # it is UP, or closed before it was
        self.closed = Event()

    # --- what others ask of it --------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        assert self._lease is not None
        return self._lease

    @property
    def answers(self) -> Answers:
        assert self._answers is not None
        return self._answers

    @property
    def journalling(self) -> Journalling:
        assert self._journalling is not None
        return self._journalling

    @property
    def endpoint(self) -> DocumentEndpoint:
        assert self._visitors is not None
        return self._visitors

    @property
    def loaded(self) -> Loaded:
        assert self._loaded is not None
        return self._loaded

    @property
    def epoch(self) -> int:
        """In which everything up to the follower's position was read."""
        return self.loaded.follower.position.epoch

    @property
    def is_up(self) -> bool:
        return self._answering

    def is_newer_than(self, revision: int) -> bool:
        """Whether we load it or have it, by a write after this revision of its status: that one is the past.

        When it is up, no status at all may also mean that the bucket is lost: that is to be looked at.
        """
        lease = self._lease
        if lease is None or self._ending.wanted or (self._answering and not revision):
            return False
        return lease.valid() and lease.revision > revision

    @property
    def is_long(self) -> bool:
        """Whether its WAL is so long that a snapshot would save whoever loads it next some time."""
        intake = self.loaded.intake  # a tombstone is not compacted
        return not intake.deleted and intake.wal_bytes >= self.context.settings.compact_idle_bytes

    @property
    def is_settled(self) -> bool:
        """Whether the document in memory is what is stored, as far as we know."""
        return not self._reload

    @property
    def size(self) -> Size:
        """The document's size, by which the time of Loro's calls on it is bounded."""
        intake = self.loaded.intake
        return Size(intake.replica.operations, intake.document_bytes)

    def needs_child(self, call: Call | None = None) -> bool:
        """Whether this call on the whole document may take too long for the loop. None: on an old version."""
        return not self.costs.is_short(call, self.size)

    def waiting(self) -> tuple[int, int, int]:
        """What is queued here: messages, their bytes, and ACKs that wait for disks."""
        acks = 0 if self._answers is None else self._answers.waiting
        return len(self._backlog), self._backlog.bytes, acks

    @property
    def unfinished_bytes(self) -> int:
        """Held for updates and calls that wait for chunks."""
        held = 0 if self._loaded is None else self._loaded.intake.unfinished_bytes
        return held if self._visitors is None else held + self._visitors.unfinished_bytes

    @property
    def snapshot_bytes_stored(self) -> int:
        """Of the stored snapshot; 0 if there is none or it is not known yet."""
        head = None if self._loaded is None else self._loaded.snapshot
        return 0 if head is None else head.size

    @property
    def why_closed(self) -> str:
        """Why it is closed or closing."""
        return self._ending.why or "failed"

    def step_down(self, why: str) -> None:
        """Somebody else has the document: answer nothing more, write nothing more."""
        self._answering = False
        self._ending.step_down(why)
        self._wake.set()

    def stop(self, why: str, *, finish: bool = True) -> None:
        """Finish what is queued now (unless told not to, now or before), say DOWN, and close."""
        self._ending.stop(why, finish=finish, newest=self._backlog.newest)
        self._wake.set()

    def reconnected(self) -> None:
        """The connection is back: what we missed is in the stream."""
        self._catch_up = True
        self._wake.set()

    def epoch_changed(self) -> None:
        """The WAL's sequences mean something else now: read the subject again from its beginning."""
        self._rewind = True
        self._wake.set()

    @property
    def wal_messages(self) -> int | None:
        """How many messages of what we took the WAL must hold; None: something is being removed just now."""
        if not self._answering or self._reload or self._rewind or self.compacting.locked():
            return None
        return None if self.answers.to_quarantine else self.loaded.follower.taken - self.answers.moved

    def stream_lost(self) -> None:
        """Messages that we took are not in the WAL any more: read it again, store what only we have."""
        self._rewind = True
        self._wake.set()

    @property
    def snapshot_revision(self) -> int:
        """The revision of the stored snapshot that this host knows; 0: none."""
        return 0 if self.loaded.snapshot is None else self.loaded.snapshot.revision

    def adopt_snapshot(
        self,
        head: SnapshotHead,
        facts: SnapshotMetadata,
        wal_bytes: int,
        new_bytes: int,
        *,
        holds_all: bool = True,
    ) -> None:
        """That snapshot is the stored one now; it covers so many bytes of the WAL and of accepted updates.

        `holds_all`: also whatever the stream has lost.
        """
        self.loaded.snapshot, self.loaded.facts = head, facts
        intake = self.loaded.intake
        intake.wal_bytes = max(0, intake.wal_bytes - wal_bytes)
        intake.stored_bytes, intake.new_bytes = head.size, max(0, intake.new_bytes - new_bytes)
        self.due.tried(self.context.clock.now())
        if holds_all:
            self.must_store = False

    async def knows_snapshot(self, *, ask: bool = False) -> bool:
        """Whether what is stored is what we think; asked after a lost connection, or always.

        Raises TransportError.

        A bucket that was lost and made anew counts its revisions from 1 again: that of another's snapshot,
        or of a tombstone, may be the one that we expect.
        """
        if not (ask or self.doubts_snapshot):
            return True
        head, known = await self.context.snapshots.head(self.document_id), self.loaded.snapshot
        if head is None or known is None:
            same = head is known
        else:
            same = (head.revision, head.nuid) == (known.revision, known.nuid)
        self.doubts_snapshot = not same
        return same

    def adopt_no_snapshot(self) -> None:
        """The stored snapshot is gone; the document in memory stands for it."""
        self.must_store |= self.loaded.snapshot is not None and not self.loaded.intake.deleted
        self.loaded.snapshot = None

    def unneeded_before(self, epoch: int, revision: int, before: int) -> int:
        """Up to where a purge may go that was planned when that snapshot was stored; 0: it must not be made.

        The plan holds while the stored snapshot is the same, and what was read is not being read anew.
        """
        if not self._answering or self._reload or self._rewind or self.answers.to_quarantine:
            return 0
        if self.must_store or self.doubts_snapshot:  # it may be gone
            return 0
        if self.epoch != epoch or self.snapshot_revision != revision or self.loaded.intake.deleted:
            return 0
        return min(before, wal_bounds.first_needed(self.loaded, self.answers))

    def purged(self, before: int, messages: int) -> None:
        """So many messages of ours are not in the WAL any more: all below that sequence."""
        self.loaded.intake.purged(before)
        self.loaded.follower.taken -= messages

    def idle_seconds(self) -> float:
        return self.context.clock.now() - self._last_activity

    def touch(self) -> None:
        """Somebody uses the document."""
        self._last_activity = self.context.clock.now()

    # --- its life ---------------------------------------------------------------------------------

    async def run(self, lease: Lease) -> None:
        """Own the document from here to the end; raises what made the load fail."""
        self._lease = lease
        self._answers = Answers(
            self.document_id,
            self.context,
            lease,
            log=self.log,
            spawn=self.spawn,
            is_up=self._is_answering,
        )
        self._journalling = Journalling(self.document_id, self.context, lease)
        self.spawn(self._answers.say_what_is_safe())
        try:
            await self._start()
            await self._follow()
            await self._finish_answers()
        except ClosedEarly:
            pass
        except Exception as error:
            self._ending.set_reason(f"failed: {error}")
            raise
        finally:
            self._answering = False
            self._timer.stop()
            await self._tasks.close()
            self.context.counters.step_downs += lease.lost
            await self._leave()
            if self._visitors is not None:
                self._visitors.close()
                self._visitors = None  # they hold us: a closed document is freed at once
            self.started.set()
            self.closed.set()

    def spawn(self, work: Work) -> None:
        """Run something beside the follower; it ends with the host."""
        self._tasks.spawn(work)

    def _is_answering(self) -> bool:
        return self._answering

    def _background_failed(self, error: Exception) -> None:
        match error:
            case LeaseLost():
                self.step_down(str(error))
            case JournalStopped():
                self.stop(str(error), finish=False)
            case LorogoError():
                self.log.warning("background work failed", problem=str(error))
            case _:
                self.log.error("background work failed", exc_info=error)

    async def _start(self) -> None:
        document_id = self.document_id
        # What we ask next goes behind a subscription on the same connection, so its answer is the barrier:
        # here that of the load, and below that of the write which says UP (docs/decisions/0002).
        await self._listen(subjects.status(document_id), self._on_status)
        await self._hear_copies()
        await self._ending.run_until_shutdown(self._first_load())
        self._visitors = DocumentEndpoint(
            document_id,
            self.context,
            self.lease,
            log=self.log,
            call=functools.partial(self._verbs, self),
            spawn=self.spawn,
            is_up=self._is_answering,
            touch=self.touch,
            wake=self._wake.set,
        )
        await self._visitors.listen(self._listen)
        self.lease.up = True
        self._answering = not self._ending.wanted  # before UP: whoever sees it pings at once
        await self.lease.confirm()
        self.context.load_notes.forget(document_id)
        self.log.info("up", token=self.lease.token, head=self.lease.head, server=self.lease.server_id)
        await self._answer_replayed()
        self.started.set()

    async def _recover(self) -> None:
        """Wait until journals have brought back what NATS lost of it (docs/decisions/0021).

        Not a part of the load: it has a deadline of its own, takes no slot, and its end is no failure.
        """
        counters = self.context.counters
        self.recovering = True
        counters.recovering += 1
        try:
            self.incomplete = await self.context.recover(self.document_id, self.lease.journal_of)
        finally:
            self.recovering = False
            counters.recovering -= 1
        if self.incomplete:
            self.log.warning("served without journals of absent servers", journals=list(self.incomplete))

    async def _first_load(self) -> None:
        await asyncio.sleep(self.lease.wait_seconds)
        while True:
            doubts = await self.context.data_losses()
            await self._recover()
            if await self._load_in_turn(doubts):
                return

    async def _load_in_turn(self, doubts: int) -> bool:
        context = self.context
        context.counters.loads_waiting += 1
        try:
            await context.load_slots.acquire()
        finally:
            context.counters.loads_waiting -= 1
        deadline = asyncio.timeout(context.settings.load_seconds_max)
        try:
            await context.load_notes.begin(self.document_id, self.lease.failures)
            async with deadline:
                return await self._load(doubts)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DocumentLoadFailed(
                f"it was not loaded in {context.settings.load_seconds_max:g} s"
            ) from None
        finally:
            context.load_notes.end(self.document_id)
            context.load_slots.release()

    async def _load(self, doubts: int | None = None) -> bool:
        """Load what is stored, and put our token on it.

        `doubts`: as counted before the journals were compared. False: NATS lost data since. Then nothing is
        claimed: a tombstone that was lost cannot be stored again over a claim.
        """
        context = self.context
        self._heard_at = context.clock.now()
        for _ in range(_LOAD_TRIES):
            if context.epochs.in_doubt:
                await context.check_epoch()  # what our journal covers is told by sequences
            loaded = await load(
                context.transport,
                context.snapshots,
                self.document_id,
                context.settings,
                context.clock,
                epoch=context.epochs.current,
                checked=self._checked,
                covered=self.journalling.covered.position,
                accepted=self.journalling.covered.position,
                validate=context.validate,
                batch_validation=context.batch_validation,
            )
            if doubts is not None and doubts != await context.data_losses():
                return False
            if self._lost_tombstone(loaded):
                raise TombstoneLost("NATS has lost its tombstone, which a journal must bring back")
            if loaded.facts.lease > self.lease.token:
                # A newer owner has it, and we were not told; or tokens of a bucket that is gone were higher.
                await self.lease.confirm()
            if await claim(context.snapshots, self.document_id, loaded, self.lease.token):
                safe = await self.journalling.loaded(loaded)
                self.answers.last = safe or self.answers.last
                first, self._loaded = self._loaded is None, loaded
                self.answers.trimming = False
                self.must_store &= not loaded.intake.deleted  # a tombstone is stored as it is
                if first and self.is_long:  # loaded afresh, it may be because it could not be compacted
                    self.due.want("it took long to load")
                loaded.intake.share(
                    context.unfinished, functools.partial(context.vouchers.has, self.document_id)
                )
                self.journalling.cover(wal_bounds.covered_through(loaded, self.answers))
                self._checked = False
                self.lease.head, self.lease.tail = loaded.intake.head.sequence, loaded.intake.tail
                self._witness()
                return True
        raise DocumentLoadFailed("others keep storing snapshots of the document")

    def _lost_tombstone(self, loaded: Loaded) -> bool:
        """Whether we know the document as deleted, and what is stored is neither that nor a later life."""
        known = self._loaded
        if known is None or not known.facts.deleted or loaded.intake.deleted:
            return False
        return loaded.facts.generation <= known.facts.generation

    def journal_expired(self, before_ns: int) -> None:
        """Records before that time go: if some may be ours, a compaction begins the journal anew."""
        if self._journalling is not None and self._journalling.expired(before_ns):
            self.due.want("the journal's old segments expired")

    async def journalled(self) -> None:
        """Everything accepted up to now is in our journal when this returns. Raises JournalStopped."""
        covered = wal_bounds.covered_through(self.loaded, self.answers)
        # Else something is taken and not yet given to the journal, or will be judged again.
        settled = not (self._turning or self._reload or self._rewind)
        await self.answers.all_on_disk()
        if settled:
            self.journalling.cover(covered)

    async def _finish_answers(self) -> None:
        """The last ACKs of a graceful stop; and what the journal has is noted for the next load."""
        if self._ending.graceful:
            await self.answers.all_said(self._ending.last_acks_seconds)
        with contextlib.suppress(JournalStopped):
            await self.journalled()

    async def _listen(self, subject: str, handler: Callable[[Message], None]) -> None:
        subscription = await self.context.transport.bus.subscribe(subject, handler)
        self._subscriptions.append(subscription)

    async def _hear_copies(self) -> None:
        subject = subjects.committed(self.document_id)
        self._copies = await self.context.transport.bus.subscribe(subject, self._on_committed)

    async def _leave(self) -> None:
        """Stop listening first, then give up the lease."""
        self.answers.give_up()
        for call in self.shared_calls.values():
            call.cancel()
        if self._copies is not None:
            self._subscriptions.append(self._copies)
            self._copies = None
        for subscription in self._subscriptions:
            with contextlib.suppress(TransportError):
                await subscription.close()
        self._subscriptions.clear()
        lease = self.lease
        try:
            await lease.give_up(write_down=self._ending.graceful, owed=self.must_store)
        except TransportError as error:
            self.log.warning("could not write DOWN", problem=str(error))
        self.log.info("closed", why=self.why_closed, token=lease.token)

    # --- following the WAL ------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self._wait()
            if self._ending.wanted and not self._unfinished():
                return
            async with self.busy:
                if self._ending.at_once:
                    return  # told so while others held it
                self._turning = True
                await self._turn()
                self._turning = False
            if self._to_do():
                await asyncio.sleep(0)

    def _unfinished(self) -> bool:
        """Whether something is queued that came before a graceful stop."""
        return (
            self.context.transport.bus.connected
            and len(self._backlog) > 0
            and self._ending.finishes(self._backlog.first.sequence)
        )

    async def _wait(self) -> None:
        """Until there is something to do, or time itself has something to do."""
        if self._to_do():
            return
        now = self.context.clock.now()
        deadline = self.loaded.intake.next_deadline()
        delay = self.endpoint.rest_seconds()
        if deadline is not None:
            delay = min(delay, max(0.0, deadline - now))
        self._wake.clear()
        if self._ending.wanted:
            return
        self._timer.ring_at(now + delay)
        await self._wake.wait()

    def _to_do(self) -> bool:
        """Whether the next turn may begin at once."""
        return self._has_turn() or self._catch_up or self._rewind or self._reload

    def _has_turn(self) -> bool:
        """Whether a copy is queued that can be taken now; at the end no more is tasted ahead."""
        return len(self._backlog) > 0 and (self._backlog.first.is_validation_done or self._ending.wanted)

    async def _turn(self) -> None:
        if self._reload and not await self._load_again():
            return
        if self._rewind:
            await self._read_again()
        if self._catch_up:
            await self._read_missing(bytes_max=_ROUND_BYTES_MAX)
        now = self.context.clock.now()
        turn_ends = now + _SLICE_SECONDS
        while self._has_turn():
            if not await self._take(self._backlog.first, now):
                return  # it is looked at again after reading what is missing
            self._backlog.drop_first()
            if self._reload:
                return  # Loro panicked: what comes next would be judged by a broken document
            now = self.context.clock.now()
            if now >= turn_ends:
                break
        span = self.context.wal_usage.document_share(self.context.settings)
        try:
            late = self.loaded.intake.tick(now, span_bytes_max=span)
        except CrdtPanic as error:
            self.broken(str(error))
            return  # the load reads again what waited
        await self._carry_out_all(late)
        self.endpoint.sweep(now)
        if self.loaded.intake.wal_bytes >= self.context.settings.compact_wal_bytes:
            self.due.want("the WAL is long")
        elif self.loaded.intake.nearly_full:
            self.due.want("the document is nearly full")

    async def _take(self, heard: QueuedMessage, now: float) -> bool:
        copy, loaded = heard.copy, self.loaded
        stored, follower = copy.stored, loaded.follower
        match follower.classify(stored, copy.previous):
            case AlreadyRead():
                return True
            case MessageGap() if self._read_for == stored.sequence:
                return await self._settle_doubt(copy)  # all was read, and it still follows what is not there
            case MessageGap():
                self._catch_up, self._read_for = True, stored.sequence
                return False
            case UnclearPosition():
                return await self._settle_doubt(copy)
            case NextMessage():
                validate, fine = self.context.validate, heard.is_valid
                try:
                    effects = await admit(loaded.intake, stored, now, validate=validate, validated=fine)
                except CrdtPanic as error:
                    self.broken(str(error))
                    return True  # the load reads it again
                follower.took(follower.at(stored))
                self.context.epochs.saw(follower.position)
                self._heard_at = heard.at
                for effect in effects:
                    await self._carry_out(effect)
                return True

    async def _settle_doubt(self, copy: Republished) -> bool:
        """The copy does not fit what we know: the stream lost, purged or deleted something."""
        try:
            if await self.context.check_epoch():
                return False  # everything is read again, this copy included
            follower = self.loaded.follower
            if copy.stored.sequence <= follower.position.sequence:
                return True  # an old copy
            there = await self.context.wal.get(copy.stored.sequence)
            told = copy.stored
            if there is None or (there.subject, there.time_ns) != (told.subject, told.time_ns):
                return True  # not in the stream: somebody made it up, or it was lost or deleted since
        except TransportError as error:
            self.log.warning("could not ask the stream", problem=str(error))
            return await self._pause_then_catch_up()
        self._catch_up = True  # what we had last was purged or deleted; read on after our position
        return False

    async def _pause_then_catch_up(self) -> bool:
        self._catch_up = True
        await asyncio.sleep(_CATCH_UP_WAIT_SECONDS)
        return False

    async def read_to_the_end(self, *, bytes_max: int | None = None) -> None:
        """For those who hold `busy`: take whatever is in the stream now. Raises LorogoError.

        `bytes_max`: stop after about so much; then the rest is still to be read.
        """
        self._catch_up = read = False
        try:
            await read_on(
                self.context.wal,
                self.document_id,
                self.loaded,
                self.context.clock,
                self._carry_out_read,
                validate=self.context.validate,
                batch_validation=self.context.batch_validation,
                bytes_max=bytes_max,
            )
            read = True
        except CrdtPanic as error:
            self.broken(str(error))
            raise
        finally:
            # The rest is still to be read, for any caller; without copies the next turn subscribes again.
            self._catch_up |= not read or self._copies is None
            self._witness()  # before anything else is waited for: the stream may be another then

    async def _read_missing(self, *, bytes_max: int | None = None) -> None:
        """Take what is in the stream after our position; copies of it in the backlog become known.

        `bytes_max`: of one round. Copies are heard again after a round that found less, and what came before
        the subscription is read in the next round.
        """
        seen = self.loaded.intake.seen_bytes
        try:
            await self.read_to_the_end(bytes_max=bytes_max)
            if bytes_max is not None and self.loaded.intake.seen_bytes - seen >= bytes_max:
                self._catch_up = True
            elif self._copies is None:
                self._catch_up = True
                await self._hear_copies()
        except JournalStopped:
            raise  # what was read is in the document and on no disk: it is nobody's to answer for
        except LorogoError as error:
            self.log.warning("could not read the WAL", problem=str(error))
            await self._pause_then_catch_up()
        self._backlog.drop_through(self.loaded.follower.position.sequence)

    def _witness(self) -> None:
        """What was read is a witness of the epoch like what was heard: we will not take it a second time."""
        self.context.epochs.saw(self.loaded.follower.position)

    def lost_connection(self) -> None:
        """Whatever we knew may be the past; what was heard and waits for its turn is told of, too."""
        self.lease.suspended = self.lease.interrupted = self.doubts_snapshot = True
        if self._loaded is not None:
            self._witness()
            if (newest := self._backlog.last) is not None:
                self.context.epochs.saw(self._loaded.follower.at(newest.copy.stored))

    async def _read_again(self) -> None:
        """After a loss in the stream: read all that it has, and keep what only we have in a snapshot."""
        self._rewind = False
        epoch, head = self.context.epochs.current, self.loaded.intake.head
        self.loaded.follower.rewind(epoch)
        self.answers.forget_quarantine()  # sequences of the past; what is still bad is found again
        self.loaded.intake.begin_again(epoch)
        self._backlog.clear()
        self.must_store = not self.loaded.intake.deleted  # a lost tombstone is brought back from the journal
        await self._read_missing()
        self.loaded.intake.go_live()
        intake = self.loaded.intake
        if head.epoch == epoch and head.sequence > intake.head.sequence:
            intake.head = head
        self.lease.head, self.lease.tail = intake.head.sequence, intake.tail

    async def settle_epoch(self) -> None:
        """For those who hold `busy`: if the stream is not what it was, read it again before going on."""
        if await self.context.check_epoch() or self.epoch != self.context.epochs.current:
            await self._read_again()

    async def _load_again(self) -> bool:
        """Throw the document in memory away and load it from what is stored; False: not possible now."""
        self.answers.forget_quarantine()  # what is still bad is found again, what is not must stay
        try:
            await self._load()
        except TombstoneLost as error:
            self.log.warning("it stays deleted", problem=str(error))
            self._reload = False  # what we know stands: reconciliation takes our word, and stores it again
            return True
        except TransportError as error:
            if not error.retriable:
                raise
            self.log.warning("could not load the document afresh yet", problem=str(error))
            await asyncio.sleep(_CATCH_UP_WAIT_SECONDS)
            return False
        self._reload = False
        await self._answer_replayed()
        return True

    def broken(self, why: str) -> None:
        """Loro panicked while the document was read: load it afresh, trying every update."""
        self.log.error("the document in memory is broken, loading it afresh", problem=why)
        self._reload = self._checked = True
        self._wake.set()

    def doubt_stored(self) -> None:
        """What is stored may not be what we think: load it before anything else is done."""
        self._reload = True
        self._wake.set()

    async def reload(self) -> None:
        """For those who hold `busy`: the stored state is the truth now, load it."""
        self._reload = True
        await self._load_again()

    # --- acting on what was decided ---------------------------------------------------------------

    async def _answer_replayed(self) -> None:
        """Answer those whose update the owner before us may have left without an answer."""
        loaded = self.loaded
        for effect in loaded.unanswered:
            await self._carry_out(effect, announce=False)
        loaded.unanswered = []  # only now: until then they bound what is covered

    async def _carry_out_all(self, effects: list[Effect]) -> None:
        """Of what time has done."""
        if effects:
            self._heard_at = self.context.clock.now()
        for effect in effects:
            await self._carry_out(effect)

    async def _carry_out_read(self, effect: Effect, _time_ns: int) -> None:
        """Of a message that was not heard, but read."""
        self._heard_at = self.context.clock.now()
        await self._carry_out(effect)

    async def _carry_out(self, effect: Effect, *, announce: bool = True) -> None:
        answers = self.answers
        try:
            match effect:
                case Accepted(update=update, new=new):
                    intake, lease, counters = self.loaded.intake, self.lease, self.context.counters
                    self.touch()
                    lease.head, lease.tail = intake.head.sequence, intake.tail
                    safe = answers.last  # what is replayed or changes nothing is as safe as what came before
                    if announce and new:
                        safe = await self._journal(effect)
                        if not lease.ended:  # else it is another's to show, or to refuse
                            await answers.announce(effect)
                    if self.context.tracing is not None:
                        self.context.tracing.accepted(self.log, self.document_id, effect, self._heard_at)
                    answers.ack_when_safe(
                        safe, update.log_id, update.digest, update.inbox, update.sequence, self._heard_at
                    )
                    counters.accepted += 1
                    counters.accepted_bytes += len(update.payload)
                case Again(log_id, digest, inbox, sequence):
                    if self.context.tracing is not None:
                        self.context.tracing.again(self.log, effect)
                    answers.ack_when_safe(answers.last, log_id, digest, inbox, sequence, self._heard_at)
                case RefusedUpdate():
                    self._trace_refused(effect)
                    if answers.leaves(effect):
                        self.loaded.intake.leave(effect.sequences)
                    await answers.refuse(effect, self.epoch)
                case Poisoned():
                    # Loro panics over honest updates of trees, too, but not always: the load tries it again,
                    # and refuses it if Loro panics then.
                    self._reload = True
        except TransportError as error:
            # The sender asks again, a reader sees the gap: nothing is lost by an unsent message.
            self.log.info("answer not sent", problem=str(error))

    def _trace_refused(self, no: RefusedUpdate) -> None:
        if self.context.tracing is not None:
            self.context.tracing.refused(self.document_id, no, self._heard_at)

    async def _journal(self, accepted: Accepted) -> Awaitable[object]:
        """Queue it for the disk; from here on nothing counts as safe before it is."""
        try:
            safe = await self.journalling.accepted(accepted, self.loaded.facts.generation)
        except JournalStopped:
            self._answering = False  # the document holds what no disk holds: nothing more is said of it
            raise
        self.answers.last = safe
        return safe

    # --- messages ---------------------------------------------------------------------------------

    def _on_status(self, message: Message) -> None:
        if self.lease.on_own_renewal(message):
            return
        entry = status_of(message)
        if entry is None:
            return
        match self.lease.on_status(entry):
            case Reclaim() as reclaim if self.lease.up:
                self.spawn(self.lease.reclaim(reclaim))
            case _:
                pass

    def _on_committed(self, message: Message) -> None:
        try:
            copy = republished(message)
        except MalformedMessage as error:
            self.log.warning("not from the stream", problem=str(error))
            return
        if not self._backlog.has_room(len(copy.stored.data), self.context.clock.now()):
            self._catch_up = True  # it is in the stream: read it when there is room
            self._hear_no_copies()
        else:
            batch_validation = self.context.batch_validation
            ahead = (
                None if batch_validation is None else batch_validation.add(copy.stored.data, self._wake.set)
            )
            self._backlog.add(QueuedMessage(copy, self.context.clock.now(), ahead))
            if ahead is not None:
                return  # woken when it is known
        self._wake.set()

    def _hear_no_copies(self) -> None:
        """Read them from the stream instead, at our own pace.

        nats-server closes a connection that leaves too much unread, and this one is that of all documents.
        """
        if self._copies is not None:
            self.spawn(self._copies.close())
            self._copies = None

"""A drill from its beginning to its end: processes, writers, one fault after the other, and what is left.

    outcome = await Drill(settings, traces, tell=print, stop=event).run()

After each fault it waits until everything that was written is ACKed. At the end nobody edits any more, all
writers are killed, NATS and the servers are killed and started once more, and a new client reads every
document: only what is on disks counts.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from lorogo_chaos import final_check
from lorogo_chaos.errors import ChaosError, FaultUnavailable, StackNotReady
from lorogo_chaos.faults import plan
from lorogo_chaos.faults.faults import NEEDS_CLUSTER, Fault, InjectedFault, registry
from lorogo_chaos.faults.plan import FaultChoice, PlannedFault
from lorogo_chaos.faults.writer_faults import WRITER_FAULTS
from lorogo_chaos.fleet.client_fleet import ClientFleet
from lorogo_chaos.fleet.traces import RecordedTrace
from lorogo_chaos.processes.servers import last_said
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings
from lorogo_chaos.processes.usage import UsageGrowth, UsageRecorder, measure
from lorogo_chaos.verdict import FaultRecord, FaultRunVerdict, FinalContents, judge
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.status import Up
from lorogo_transport.stores.statuses import Statuses

_FIRST_SECONDS = 60.0  # until every document has its first ACK
_STRIKE_SECONDS = 180.0
_ASK_SECONDS = 3.0
_SAMPLE_SECONDS = 2.0
_REST_SECONDS = 90.0
_READ_SECONDS = 120.0
_EQUAL_SECONDS = 30.0
_HURRY_SECONDS = 15.0  # for each of them, when the drill was interrupted
_HURRY_DISKS_SECONDS = 60.0  # then, for the last restart and the reading together
_COME_AND_GO = 0.3  # the chance, after a fault, that a writer leaves and another life of it begins
_TROUBLES_MAX = 200
_IDLE_SECONDS = 30.0  # documents that are left behind are unloaded after that
_SMALL_DISK_BYTES = 64 << 20
_SMALL_DISK_BYTES_A_MINUTE = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRunSettings:
    """What is drilled, with how much, for how long."""

    nodes: int = 1
    servers: int = 2
    documents: int = 8
    writers: int = 4
    faults: int = 20  # at most; 0: until the minutes are over
    minutes: float = 0.0  # at most; 0: until all faults have struck
    every_seconds: float = 5.0  # from one strike to the next, at least
    edits_per_second: float = 30.0  # of all writers together
    edits_each: int = 0  # of a writer in a document; then it begins the next one. 0: it stays
    recovery_seconds: float = 120.0  # that a recovery may take before the drill goes on without it
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    seed: int = 1
    folder: Path | None = None  # where everything is kept, and left; None: a temporary one

    def __post_init__(self) -> None:
        for name, low, high in (
            ("documents", 1, 1000),
            ("writers", 1, 16),
            ("faults", 0, 100_000),
            ("minutes", 0, 24 * 60),
            ("every_seconds", 0, 3600),
            ("edits_per_second", 0.1, 500),
            ("edits_each", 0, 100_000),
        ):
            if not low <= getattr(self, name) <= high:
                raise ChaosError(f"{name.replace('_', ' ')} must be {low} to {high}")
        if not self.faults and not self.minutes:
            raise ChaosError("a drill needs a number of faults or of minutes")


@dataclass
class FaultRunResult:
    """What a drill has shown."""

    verdict: FaultRunVerdict
    happened: list[FaultRecord] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # faults, and why
    troubles: list[str] = field(default_factory=list)  # what else went wrong, in words
    in_error: list[str] = field(default_factory=list)  # documents in the state ERROR
    growths: list[UsageGrowth] = field(default_factory=list)
    fresh_bytes: dict[str, int] = field(default_factory=dict)  # servers just restarted, all documents loaded
    seconds: float = 0.0
    began_at: float = 0.0  # of the monotonic clock: times of `happened` count from here
    interrupted: bool = False
    unfinished: bool = False  # interrupted, and not everything was read from disks
    folder: str = ""  # what was kept; "": nothing

    @property
    def good(self) -> bool:
        return self.verdict.good and self.verdict.acked > 0 and not self.in_error and not self.unfinished


class FaultRun:
    """One drill; `run()` once."""

    def __init__(
        self,
        settings: FaultRunSettings,
        traces: Sequence[RecordedTrace],
        *,
        tell: Callable[[str], None] = lambda words: None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """`tell` gets a line for each thing that happens; `stop` ends it early, and it is still verified."""
        self._settings = settings
        self._traces = traces
        self._tell = tell
        self._stop = asyncio.Event() if stop is None else stop
        self._rng = random.Random(f"drill {settings.seed}")
        self._documents = [f"chaos-{number + 1}" for number in range(settings.documents)]
        self._usage = UsageRecorder()
        self._began = 0.0
        self.outcome = FaultRunResult(FaultRunVerdict())

    async def run(self) -> FaultRunResult:
        """Raises ChaosError if it cannot begin."""
        settings, outcome = self._settings, self.outcome
        self._began = outcome.began_at = time.monotonic()
        chosen = self._choices()
        full = any(choice.name == "disk-full" for choice in chosen)
        stack_settings = ChaosStackSettings(
            nodes=settings.nodes,
            servers=settings.servers,
            folder=settings.folder,
            small_disk_bytes=_small_disk(settings) if full else 0,
            serve_options=("--idle-seconds", f"{_IDLE_SECONDS:g}") if settings.edits_each else (),
        )
        rng = random.Random(f"stack {settings.seed}")
        parties = f"{_count(settings.nodes, 'nats-server')}, {_count(settings.servers, 'server')}"
        self._say(f"starting {parties}, {_count(settings.writers, 'writer')}; seed {settings.seed}")
        async with self._stop_told(), ChaosStack(stack_settings, rng=rng) as stack:
            crowd = ClientFleet(
                stack,
                self._documents,
                writers=settings.writers,
                traces=self._traces,
                edits_per_second=settings.edits_per_second,
                seed=settings.seed,
                edits_each=settings.edits_each,
            )
            async with crowd:
                sampling = asyncio.create_task(self._sample(stack, crowd))
                try:
                    await self._first_acks(crowd)
                    await self._strike_all(stack, crowd, self._possible(stack, crowd, chosen))
                    await self._end(stack, crowd)
                finally:
                    sampling.cancel()
                    await asyncio.gather(sampling, return_exceptions=True)
            for server in stack.servers:
                for end in server.ends:
                    self._trouble(f"{server.name} ended by itself with {end.code}: {last_said(end.words)}")
        outcome.growths = self._usage.growths()
        outcome.seconds = time.monotonic() - self._began
        outcome.interrupted = self._stop.is_set()
        outcome.folder = "" if settings.folder is None else str(settings.folder.absolute())
        return outcome

    # --- what may strike ----------------------------------------------------------------------------

    def _choices(self) -> list[FaultChoice]:
        """Those that were asked for; of those that do harm, those of one side. Raises ChaosError."""
        faults, left_out = registry(), self.outcome.left_out
        every = [FaultChoice(fault.name, fault.harms) for fault in faults.values()]
        every += [FaultChoice(name) for name in WRITER_FAULTS]
        wanted = plan.chosen(every, self._settings.only, self._settings.without)
        if self._settings.nodes == 1:
            left_out |= {one.name: NEEDS_CLUSTER for one in wanted if _clustered(faults, one)}
        wanted = [one for one in wanted if one.name not in left_out]
        if not wanted:
            raise FaultUnavailable(_none_possible(left_out))
        kept, spared = plan.one_side(wanted, self._settings.seed)
        left_out |= {choice.name: _ONE_SIDE_NAMED if self._settings.only else _ONE_SIDE for choice in spared}
        return kept

    def _possible(
        self, stack: ChaosStack, crowd: ClientFleet, choices: Sequence[FaultChoice]
    ) -> list[FaultChoice]:
        self._faults: dict[str, Fault] = registry()
        self._faults |= {name: make(crowd) for name, make in WRITER_FAULTS.items()}
        found: list[FaultChoice] = []
        for choice in choices:
            if why_not := self._faults[choice.name].needs(stack):
                self.outcome.left_out[choice.name] = why_not
            else:
                found.append(choice)
        if not found:
            raise FaultUnavailable(_none_possible(self.outcome.left_out))
        return found

    # --- the course ---------------------------------------------------------------------------------

    async def _first_acks(self, crowd: ClientFleet) -> None:
        settings = self._settings
        seconds = _FIRST_SECONDS + 2 * settings.documents / settings.edits_per_second
        until = time.monotonic() + seconds
        while not self._stop.is_set():
            crowd.listen()
            if crowd.acked.issuperset(self._documents):
                break
            if time.monotonic() > until:
                missing = sorted(set(self._documents) - crowd.acked)
                raise StackNotReady(f"no ACK of {', '.join(missing[:5])} within {seconds:g} s")
            await self._pause(0.2)
        if not self._stop.is_set():
            self._say(f"{_count(len(self._documents), 'document')} ACKed; the faults begin")

    async def _strike_all(
        self, stack: ChaosStack, crowd: ClientFleet, choices: Sequence[FaultChoice]
    ) -> None:
        settings = self._settings
        ends = time.monotonic() + settings.minutes * 60 if settings.minutes else float("inf")
        struck = 0
        refused = 0
        for step in plan.steps(choices, settings.seed):
            if self._stop.is_set() or time.monotonic() >= ends or 0 < settings.faults <= struck:
                return
            began = time.monotonic()
            if await self._one(stack, crowd, step):
                struck, refused = struck + 1, 0
            elif (refused := refused + 1) > 3 * len(choices):
                self._trouble("no fault can strike any more")
                return
            await self._come_and_go(crowd)
            await self._pause(max(0.0, min(began + settings.every_seconds, ends) - time.monotonic()))

    async def _come_and_go(self, crowd: ClientFleet) -> None:
        """Whoever is not there comes back, and sometimes one leaves and begins another life."""
        try:
            for index in await crowd.revive():
                self._trouble(f"writer-{index + 1} was not there any more, and was started again")
            if self._rng.random() < _COME_AND_GO and not self._stop.is_set():
                index = self._rng.randrange(self._settings.writers)
                await crowd.leave(index)
                await crowd.start(index)
        except StackNotReady as error:  # it is tried again after the next fault
            self._trouble(_words(error))

    async def _one(self, stack: ChaosStack, crowd: ClientFleet, step: PlannedFault) -> bool:
        """Strike, hold, mend, and wait for the recovery; False if it could not strike."""
        fault = self._faults[step.name]
        owners = await self._owners(stack, crowd.current)
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(_STRIKE_SECONDS):
                struck = await fault.strike(stack, random.Random(step.seed))
        except FaultUnavailable as error:
            self.outcome.left_out.setdefault(step.name, str(error))
            return False
        except (LorogoError, TimeoutError) as error:
            self._trouble(f"{step.name} went wrong: {_words(error)}")
            struck = InjectedFault(f"half done: {_words(error)}")
        await self._pause(fault.hold_seconds * step.share)
        await self._mend(stack, fault)
        ended_at = time.monotonic()
        recovered_at = await crowd.recovered(ended_at, self._patience)
        owned = () if struck.at is None else _owned(stack, struck, owners)
        at = began_at if struck.at is None else struck.at
        happened = FaultRecord(step.name, struck.words, at, ended_at, recovered_at, owned, struck.felt)
        self.outcome.happened.append(happened)
        self._tell_of(step, happened)
        if recovered_at is None:
            await self._why_not(stack, crowd, ended_at)
        await self._all_run(stack, step.name)
        return True

    @property
    def _patience(self) -> float:
        return _HURRY_SECONDS if self._stop.is_set() else self._settings.recovery_seconds

    async def _mend(self, stack: ChaosStack, fault: Fault) -> None:
        try:
            async with asyncio.timeout(_STRIKE_SECONDS):
                await fault.mend(stack)
        except (LorogoError, TimeoutError) as error:
            self._trouble(f"{fault.name} could not be mended: {_words(error)}")

    async def _all_run(self, stack: ChaosStack, after: str) -> None:
        try:
            async with asyncio.timeout(_STRIKE_SECONDS):
                await stack.wait_ready()
        except (LorogoError, TimeoutError) as error:
            self._trouble(f"after {after} not everything runs: {_words(error)}")

    async def _owners(self, stack: ChaosStack, documents: Sequence[str]) -> dict[str, str]:
        """The id of the server that has each document; empty if NATS does not tell."""
        found: dict[str, str] = {}
        with suppress(LorogoError, TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS), await stack.connect() as operator:
                entries = await Statuses(operator).read_many(documents)
                for document, entry in entries.items():
                    if isinstance(entry.status, Up):
                        found[document] = entry.server
        return found

    async def _why_not(self, stack: ChaosStack, crowd: ClientFleet, before: float) -> None:
        """Say what is known of a recovery that did not come."""
        missing = sorted(crowd.unacked(before))
        missing += [f"any document of writer-{index + 1}" for index in crowd.without_ack(before)]
        self._trouble(f"no ACK of {', '.join(missing[:5])} within {self._patience:g} s of the fault's end")
        with suppress(LorogoError, TimeoutError):
            for document in await final_check.failed(stack.direct_url, crowd.documents, _HURRY_SECONDS):
                self._trouble(f"{document} is in the state ERROR")

    # --- the end ------------------------------------------------------------------------------------

    async def _end(self, stack: ChaosStack, crowd: ClientFleet) -> None:
        hurry = self._stop.is_set()
        self._say("no more faults: the writers wait for their last ACKs")
        unrested = await crowd.rest(_HURRY_SECONDS if hurry else _REST_SECONDS)
        if not unrested:
            unrested = await self._become_equal(stack, crowd, _HURRY_SECONDS if hurry else _EQUAL_SECONDS)
        await crowd.kill_all()
        everything = await self._from_disks(stack, crowd.documents, hurry)
        self.outcome.unfinished = hurry and None in everything.values()
        with suppress(LorogoError, TimeoutError):
            self.outcome.in_error = await final_check.failed(
                stack.direct_url, crowd.documents, _HURRY_SECONDS
            )
        self._note_troubles(crowd)
        self.outcome.verdict = judge(crowd.lives, everything, self.outcome.happened, unrested=unrested)

    async def _become_equal(self, stack: ChaosStack, crowd: ClientFleet, seconds: float) -> list[int]:
        """Give the replicas time to become equal, and note what they hold; whose could not be looked at."""
        until = time.monotonic() + seconds
        while True:
            everything = await final_check.read_all(stack.direct_url, crowd.documents, seconds)
            unseen = await crowd.look()
            if unseen or not judge(crowd.lives, everything).differing or time.monotonic() > until:
                return unseen
            await asyncio.sleep(1.0)

    async def _from_disks(
        self, stack: ChaosStack, documents: Sequence[str], hurry: bool
    ) -> dict[str, FinalContents | None]:
        """Kill everything, start it again, and read every document; None where that took too long."""
        self._say("everything is killed and started again: only what is on disks counts")
        until = time.monotonic() + _HURRY_DISKS_SECONDS
        try:
            async with asyncio.timeout(_HURRY_DISKS_SECONDS if hurry else None):
                await self._blackout(stack)
        except TimeoutError:
            self._trouble("after the last restart not everything runs in time")
            return dict.fromkeys(documents)
        seconds = max(0.0, until - time.monotonic()) if hurry else _READ_SECONDS
        everything = await final_check.read_all(stack.direct_url, documents, seconds)
        self._note_fresh(stack)
        return everything

    async def _blackout(self, stack: ChaosStack) -> None:
        await asyncio.gather(*(server.kill() for server in stack.servers))
        await asyncio.gather(*(node.kill() for node in stack.nodes))
        await self._all_run(stack, "the last restart")

    def _note_fresh(self, stack: ChaosStack) -> None:
        """What servers hold that have just loaded every document: what was above it was something else."""
        for server in stack.servers:
            sample = None if server.pid is None else measure(server.pid, time.monotonic())
            if sample is not None:
                self.outcome.fresh_bytes[server.name] = sample.memory_bytes

    def _note_troubles(self, crowd: ClientFleet) -> None:
        """What ended sessions for good: it should not happen at all."""
        told: set[str] = set()
        for life in crowd.lives:
            for note in life.notes:
                kind = note.words.partition(":")[0]
                if note.kind == "trouble" and kind in ("DocumentFailed", "UpdateRefused", "DocumentDeleted"):
                    told.add(f"writer-{life.writer + 1} was told of {note.document}: {note.words}")
        for words in sorted(told):
            self._trouble(words)

    # --- telling ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _stop_told(self) -> AsyncIterator[None]:
        """Say at once that the drill is interrupted: the end takes a while."""

        async def tell() -> None:
            await self._stop.wait()
            self._say("interrupted: finishing, as everything is still read from disks")

        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _sample(self, stack: ChaosStack, crowd: ClientFleet) -> None:
        while True:
            parties: list[tuple[str, list[int]]] = [(server.name, server.pids) for server in stack.servers]
            parties += [(node.name, [] if node.pid is None else [node.pid]) for node in stack.nodes]
            self._usage.sample(dict(chain(parties, crowd.pids.items())), time.monotonic())
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """So long, unless the drill is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _tell_of(self, step: PlannedFault, happened: FaultRecord) -> None:
        lasted = happened.ended_at - happened.struck_at
        seconds = happened.recovery_seconds
        end = "NOT all ACKed again" if seconds is None else f"all ACKed again {seconds:.1f} s later"
        self._say(f"{step.number:>3}  {happened.name:<16} {happened.words}; over after {lasted:.1f} s, {end}")

    def _trouble(self, words: str) -> None:
        if len(self.outcome.troubles) < _TROUBLES_MAX:
            self.outcome.troubles.append(words)
        self._say(f"     ! {' '.join(words.split())}")

    def _say(self, words: str) -> None:
        seconds = int(time.monotonic() - self._began)
        self._tell(f"{seconds // 60:02d}:{seconds % 60:02d}  {words}")


_ONE_SIDE = "a drill harms the stream or the journals, never both; another seed or --only chooses the others"
_ONE_SIDE_NAMED = "a drill harms the stream or the journals, never both, and --only names both: name one side"


def _clustered(faults: Mapping[str, Fault], choice: FaultChoice) -> bool:
    return choice.name in faults and faults[choice.name].clustered


def _none_possible(left_out: Mapping[str, str]) -> str:
    """Why no fault is left, each with its reason."""
    return "not possible here: " + "; ".join(f"{name} {why}" for name, why in left_out.items())


def _owned(stack: ChaosStack, struck: InjectedFault, owners: dict[str, str]) -> tuple[str, ...]:
    """The documents of the server that was struck."""
    ids = {server.server_id for server in stack.servers if server.name == struck.party}
    return tuple(sorted(document for document, server in owners.items() if server in ids))


def _small_disk(settings: FaultRunSettings) -> int:
    """Bytes that a journal does not fill by itself."""
    return _SMALL_DISK_BYTES + int(settings.minutes * _SMALL_DISK_BYTES_A_MINUTE)


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

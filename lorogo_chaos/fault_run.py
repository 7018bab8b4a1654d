"""A fault run: processes, writers, one fault after the other, and the final check.

    outcome = await Drill(settings, traces, progress=print, stop=event).run()

After each fault the run waits until every written edit is ACKed. At the end the writers stop editing and are
killed, NATS and the servers are killed and restarted, and a new client reads every document: only data on
disks counts.
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
from lorogo_chaos.processes.servers import last_message
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings
from lorogo_chaos.processes.usage import UsageGrowth, UsageRecorder, measure
from lorogo_chaos.verdict import FaultRecord, FaultRunVerdict, FinalContents, judge
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.status import Up
from lorogo_transport.stores.statuses import Statuses

_FIRST_SECONDS = 60.0  # for the first ACK of every document
_INJECT_SECONDS = 180.0
_ASK_SECONDS = 3.0
_SAMPLE_SECONDS = 2.0
_DRAIN_SECONDS = 90.0
_READ_SECONDS = 120.0
_EQUAL_SECONDS = 30.0
_SHORT_SECONDS = 15.0  # for each wait, if the run was interrupted
_SHORT_RESTART_SECONDS = 60.0  # then, for the last restart and the reading together
_RESTART_CHANCE = 0.3  # after a fault: a writer stops, and starts a new incarnation
_PROBLEMS_MAX = 200
_IDLE_SECONDS = 30.0  # servers unload idle documents after that
_SMALL_DISK_BYTES = 64 << 20
_SMALL_DISK_BYTES_A_MINUTE = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultRunSettings:
    """The stack, the load and the duration of a fault run."""

    nodes: int = 1
    servers: int = 2
    documents: int = 8
    writers: int = 4
    faults: int = 20  # at most; 0: until the minutes are over
    minutes: float = 0.0  # at most; 0: until all faults were injected
    every_seconds: float = 5.0  # from one fault to the next, at least
    edits_per_second: float = 30.0  # of all writers together
    edits_each: int = 0  # edits of a writer in one document before it opens the next; 0: it stays
    recovery_seconds: float = 120.0  # after this time the run continues without the recovery
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    seed: int = 1
    folder: Path | None = None  # where all files are kept; None: a temporary folder

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
            raise ChaosError("a fault run needs a number of faults or of minutes")


@dataclass
class FaultRunResult:
    """The result of a fault run."""

    verdict: FaultRunVerdict
    fault_records: list[FaultRecord] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # faults, with the reason
    problems: list[str] = field(default_factory=list)  # other errors, in words
    in_error: list[str] = field(default_factory=list)  # documents in the state ERROR
    growths: list[UsageGrowth] = field(default_factory=list)
    fresh_bytes: dict[str, int] = field(
        default_factory=dict
    )  # servers after a restart with all documents loaded
    seconds: float = 0.0
    began_at: float = 0.0  # of the monotonic clock: times of `fault_records` count from here
    interrupted: bool = False
    unfinished: bool = False  # interrupted before everything was read from disks
    folder: str = ""  # where files were kept; "": nowhere

    @property
    def good(self) -> bool:
        return self.verdict.good and self.verdict.acked > 0 and not self.in_error and not self.unfinished


class FaultRun:
    """One fault run; call `run()` once."""

    def __init__(
        self,
        settings: FaultRunSettings,
        traces: Sequence[RecordedTrace],
        *,
        progress: Callable[[str], None] = lambda words: None,
        stop: asyncio.Event | None = None,
    ) -> None:
        """`progress` gets a line per event; `stop` ends the run early, and the result is still verified."""
        self._settings = settings
        self._traces = traces
        self._progress = progress
        self._stop = asyncio.Event() if stop is None else stop
        self._rng = random.Random(f"drill {settings.seed}")
        self._documents = [f"chaos-{number + 1}" for number in range(settings.documents)]
        self._usage = UsageRecorder()
        self._began = 0.0
        self.outcome = FaultRunResult(FaultRunVerdict())

    async def run(self) -> FaultRunResult:
        """Run until the final check. Raises ChaosError if the run cannot begin."""
        settings, outcome = self._settings, self.outcome
        self._began = outcome.began_at = time.monotonic()
        choices = self._choices()
        full = any(choice.name == "disk-full" for choice in choices)
        stack_settings = ChaosStackSettings(
            nodes=settings.nodes,
            servers=settings.servers,
            folder=settings.folder,
            small_disk_bytes=_small_disk(settings) if full else 0,
            serve_options=("--idle-seconds", f"{_IDLE_SECONDS:g}") if settings.edits_each else (),
        )
        rng = random.Random(f"stack {settings.seed}")
        processes = f"{_count(settings.nodes, 'nats-server')}, {_count(settings.servers, 'server')}"
        self._log(f"starting {processes}, {_count(settings.writers, 'writer')}; seed {settings.seed}")
        async with self._log_stop(), ChaosStack(stack_settings, rng=rng) as stack:
            fleet = ClientFleet(
                stack,
                self._documents,
                writers=settings.writers,
                traces=self._traces,
                edits_per_second=settings.edits_per_second,
                seed=settings.seed,
                edits_each=settings.edits_each,
            )
            async with fleet:
                sampling = asyncio.create_task(self._sample(stack, fleet))
                try:
                    await self._first_acks(fleet)
                    await self._inject_all(stack, fleet, self._possible(stack, fleet, choices))
                    await self._end(stack, fleet)
                finally:
                    sampling.cancel()
                    await asyncio.gather(sampling, return_exceptions=True)
            for server in stack.servers:
                for end in server.exits:
                    self._problem(f"{server.name} exited with {end.code}: {last_message(end.words)}")
        outcome.growths = self._usage.growths()
        outcome.seconds = time.monotonic() - self._began
        outcome.interrupted = self._stop.is_set()
        outcome.folder = "" if settings.folder is None else str(settings.folder.absolute())
        return outcome

    # --- possible faults ----------------------------------------------------------------------------

    def _choices(self) -> list[FaultChoice]:
        """Return the selected faults; of those that cause harm, those of one side. Raises ChaosError."""
        faults, left_out = registry(), self.outcome.left_out
        every = [FaultChoice(fault.name, fault.harms) for fault in faults.values()]
        every += [FaultChoice(name) for name in WRITER_FAULTS]
        wanted = plan.select(every, self._settings.only, self._settings.without)
        if self._settings.nodes == 1:
            left_out |= {one.name: NEEDS_CLUSTER for one in wanted if _clustered(faults, one)}
        wanted = [one for one in wanted if one.name not in left_out]
        if not wanted:
            raise FaultUnavailable(_none_possible(left_out))
        kept, spared = plan.one_side(wanted, self._settings.seed)
        left_out |= {choice.name: _ONE_SIDE_NAMED if self._settings.only else _ONE_SIDE for choice in spared}
        return kept

    def _possible(
        self, stack: ChaosStack, fleet: ClientFleet, choices: Sequence[FaultChoice]
    ) -> list[FaultChoice]:
        self._faults: dict[str, Fault] = registry()
        self._faults |= {name: make(fleet) for name, make in WRITER_FAULTS.items()}
        found: list[FaultChoice] = []
        for choice in choices:
            if unmet_need := self._faults[choice.name].unmet_need(stack):
                self.outcome.left_out[choice.name] = unmet_need
            else:
                found.append(choice)
        if not found:
            raise FaultUnavailable(_none_possible(self.outcome.left_out))
        return found

    # --- the faults ---------------------------------------------------------------------------------

    async def _first_acks(self, fleet: ClientFleet) -> None:
        settings = self._settings
        seconds = _FIRST_SECONDS + 2 * settings.documents / settings.edits_per_second
        until = time.monotonic() + seconds
        while not self._stop.is_set():
            fleet.read_events()
            if fleet.acked.issuperset(self._documents):
                break
            if time.monotonic() > until:
                missing = sorted(set(self._documents) - fleet.acked)
                raise StackNotReady(f"no ACK of {', '.join(missing[:5])} within {seconds:g} s")
            await self._pause(0.2)
        if not self._stop.is_set():
            self._log(f"{_count(len(self._documents), 'document')} ACKed; the faults begin")

    async def _inject_all(
        self, stack: ChaosStack, fleet: ClientFleet, choices: Sequence[FaultChoice]
    ) -> None:
        settings = self._settings
        ends = time.monotonic() + settings.minutes * 60 if settings.minutes else float("inf")
        injected = 0
        refused = 0
        for step in plan.schedule(choices, settings.seed):
            if self._stop.is_set() or time.monotonic() >= ends or 0 < settings.faults <= injected:
                return
            began = time.monotonic()
            if await self._inject_one(stack, fleet, step):
                injected, refused = injected + 1, 0
            elif (refused := refused + 1) > 3 * len(choices):
                self._problem("no fault can be injected any more")
                return
            await self._restart_some(fleet)
            await self._pause(max(0.0, min(began + settings.every_seconds, ends) - time.monotonic()))

    async def _restart_some(self, fleet: ClientFleet) -> None:
        """Restart the writers that exited, and sometimes stop one and start a new incarnation."""
        try:
            for index in await fleet.restart_ended():
                self._problem(f"writer-{index + 1} had exited, and was restarted")
            if self._rng.random() < _RESTART_CHANCE and not self._stop.is_set():
                index = self._rng.randrange(self._settings.writers)
                await fleet.stop_gracefully(index)
                await fleet.start(index)
        except StackNotReady as error:  # retried after the next fault
            self._problem(_words(error))

    async def _inject_one(self, stack: ChaosStack, fleet: ClientFleet, step: PlannedFault) -> bool:
        """Inject, hold, heal, and wait for the recovery; False if the fault was not possible."""
        fault = self._faults[step.name]
        owners = await self._owners(stack, fleet.current)
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(_INJECT_SECONDS):
                injected = await fault.inject(stack, random.Random(step.seed))
        except FaultUnavailable as error:
            self.outcome.left_out.setdefault(step.name, str(error))
            return False
        except (LorogoError, TimeoutError) as error:
            self._problem(f"{step.name} failed: {_words(error)}")
            injected = InjectedFault(f"partly injected: {_words(error)}")
        await self._pause(fault.hold_seconds * step.share)
        await self._heal(stack, fault)
        ended_at = time.monotonic()
        recovered_at = await fleet.recovered(ended_at, self._patience)
        owned = () if injected.at is None else _owned(stack, injected, owners)
        at = began_at if injected.at is None else injected.at
        record = FaultRecord(step.name, injected.words, at, ended_at, recovered_at, owned, injected.effective)
        self.outcome.fault_records.append(record)
        self._log_fault(step, record)
        if recovered_at is None:
            await self._explain_delay(stack, fleet, ended_at)
        await self._all_run(stack, step.name)
        return True

    @property
    def _patience(self) -> float:
        return _SHORT_SECONDS if self._stop.is_set() else self._settings.recovery_seconds

    async def _heal(self, stack: ChaosStack, fault: Fault) -> None:
        try:
            async with asyncio.timeout(_INJECT_SECONDS):
                await fault.heal(stack)
        except (LorogoError, TimeoutError) as error:
            self._problem(f"{fault.name} could not be healed: {_words(error)}")

    async def _all_run(self, stack: ChaosStack, after: str) -> None:
        try:
            async with asyncio.timeout(_INJECT_SECONDS):
                await stack.wait_ready()
        except (LorogoError, TimeoutError) as error:
            self._problem(f"after {after} not every process runs: {_words(error)}")

    async def _owners(self, stack: ChaosStack, documents: Sequence[str]) -> dict[str, str]:
        """Return the id of the server that owns each document; empty if NATS does not answer."""
        found: dict[str, str] = {}
        with suppress(LorogoError, TimeoutError):
            async with asyncio.timeout(_ASK_SECONDS), await stack.connect() as operator:
                entries = await Statuses(operator).read_many(documents)
                for document, entry in entries.items():
                    if isinstance(entry.status, Up):
                        found[document] = entry.server
        return found

    async def _explain_delay(self, stack: ChaosStack, fleet: ClientFleet, before: float) -> None:
        """Log the known causes of a late recovery."""
        missing = sorted(fleet.unacked(before))
        missing += [f"any document of writer-{index + 1}" for index in fleet.without_ack(before)]
        self._problem(f"no ACK of {', '.join(missing[:5])} within {self._patience:g} s of the fault's end")
        with suppress(LorogoError, TimeoutError):
            for document in await final_check.failed(stack.direct_url, fleet.documents, _SHORT_SECONDS):
                self._problem(f"{document} is in the state ERROR")

    # --- the end ------------------------------------------------------------------------------------

    async def _end(self, stack: ChaosStack, fleet: ClientFleet) -> None:
        short = self._stop.is_set()
        self._log("no more faults: the writers wait for their last ACKs")
        undrained = await fleet.drain(_SHORT_SECONDS if short else _DRAIN_SECONDS)
        if not undrained:
            undrained = await self._compare_replicas(
                stack, fleet, _SHORT_SECONDS if short else _EQUAL_SECONDS
            )
        await fleet.kill_all()
        everything = await self._read_after_restart(stack, fleet.documents, short)
        self.outcome.unfinished = short and None in everything.values()
        with suppress(LorogoError, TimeoutError):
            self.outcome.in_error = await final_check.failed(
                stack.direct_url, fleet.documents, _SHORT_SECONDS
            )
        self._record_session_errors(fleet)
        self.outcome.verdict = judge(
            fleet.incarnations, everything, self.outcome.fault_records, undrained=undrained
        )

    async def _compare_replicas(self, stack: ChaosStack, fleet: ClientFleet, seconds: float) -> list[int]:
        """Let the replicas become equal, and record their digests; return the writers that did not answer."""
        until = time.monotonic() + seconds
        while True:
            everything = await final_check.read_all(stack.direct_url, fleet.documents, seconds)
            unseen = await fleet.record_digests()
            if unseen or not judge(fleet.incarnations, everything).differing or time.monotonic() > until:
                return unseen
            await asyncio.sleep(1.0)

    async def _read_after_restart(
        self, stack: ChaosStack, documents: Sequence[str], short: bool
    ) -> dict[str, FinalContents | None]:
        """Kill and restart everything, and read every document; None for those that took too long."""
        self._log("every process is killed and restarted: only data on disks counts")
        until = time.monotonic() + _SHORT_RESTART_SECONDS
        try:
            async with asyncio.timeout(_SHORT_RESTART_SECONDS if short else None):
                await self._blackout(stack)
        except TimeoutError:
            self._problem("after the last restart not every process runs in time")
            return dict.fromkeys(documents)
        seconds = max(0.0, until - time.monotonic()) if short else _READ_SECONDS
        everything = await final_check.read_all(stack.direct_url, documents, seconds)
        self._record_fresh_memory(stack)
        return everything

    async def _blackout(self, stack: ChaosStack) -> None:
        await asyncio.gather(*(server.kill() for server in stack.servers))
        await asyncio.gather(*(node.kill() for node in stack.nodes))
        await self._all_run(stack, "the last restart")

    def _record_fresh_memory(self, stack: ChaosStack) -> None:
        """Record the memory of servers that have just loaded every document, for comparison."""
        for server in stack.servers:
            sample = None if server.pid is None else measure(server.pid, time.monotonic())
            if sample is not None:
                self.outcome.fresh_bytes[server.name] = sample.memory_bytes

    def _record_session_errors(self, fleet: ClientFleet) -> None:
        """Record errors that ended sessions for good: there should be none."""
        found: set[str] = set()
        for incarnation in fleet.incarnations:
            for event in incarnation.events:
                kind = event.words.partition(":")[0]
                if event.kind == "trouble" and kind in ("DocumentFailed", "UpdateRefused", "DocumentDeleted"):
                    found.add(
                        f"writer-{incarnation.writer + 1} got an error in {event.document}: {event.words}"
                    )
        for words in sorted(found):
            self._problem(words)

    # --- progress -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _log_stop(self) -> AsyncIterator[None]:
        """Log the interruption at once: the end takes a while."""

        async def report() -> None:
            await self._stop.wait()
            self._log("interrupted: finishing, every document is still read from disks")

        waiting = asyncio.create_task(report())
        try:
            yield
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def _sample(self, stack: ChaosStack, fleet: ClientFleet) -> None:
        while True:
            processes: list[tuple[str, list[int]]] = [(server.name, server.pids) for server in stack.servers]
            processes += [(node.name, [] if node.pid is None else [node.pid]) for node in stack.nodes]
            self._usage.sample(dict(chain(processes, fleet.pids.items())), time.monotonic())
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the run is stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    def _log_fault(self, step: PlannedFault, record: FaultRecord) -> None:
        lasted = record.ended_at - record.injected_at
        seconds = record.recovery_seconds
        end = "NOT all ACKed again" if seconds is None else f"all ACKed again {seconds:.1f} s later"
        self._log(f"{step.number:>3}  {record.name:<16} {record.words}; over after {lasted:.1f} s, {end}")

    def _problem(self, words: str) -> None:
        if len(self.outcome.problems) < _PROBLEMS_MAX:
            self.outcome.problems.append(words)
        self._log(f"     ! {' '.join(words.split())}")

    def _log(self, words: str) -> None:
        seconds = int(time.monotonic() - self._began)
        self._progress(f"{seconds // 60:02d}:{seconds % 60:02d}  {words}")


_ONE_SIDE = "a run harms the stream or the journals, never both; another seed or --only selects the others"
_ONE_SIDE_NAMED = "a run harms the stream or the journals, never both, and --only names both: name one side"


def _clustered(faults: Mapping[str, Fault], choice: FaultChoice) -> bool:
    return choice.name in faults and faults[choice.name].clustered


def _none_possible(left_out: Mapping[str, str]) -> str:
    """Return why no fault is left, with each reason."""
    return "not possible here: " + "; ".join(f"{name} {why}" for name, why in left_out.items())


def _owned(stack: ChaosStack, injected: InjectedFault, owners: dict[str, str]) -> tuple[str, ...]:
    """Return the documents of the server that was hit."""
    ids = {server.server_id for server in stack.servers if server.name == injected.target}
    return tuple(sorted(document for document, server in owners.items() if server in ids))


def _small_disk(settings: FaultRunSettings) -> int:
    """Return a disk size that the journal alone does not fill."""
    return _SMALL_DISK_BYTES + int(settings.minutes * _SMALL_DISK_BYTES_A_MINUTE)


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""A whole run: a broker, machines, people, faults, and then peace, in which everything must become whole."""

import asyncio
import random
from contextlib import suppress

from lorogo_client import Session
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed
from lorogo_server import Server
from lorogo_server.document.loading import Loaded
from lorogo_testing.memory_nats import MemoryNats, MemoryTransport
from lorogo_testing.process import SimulatedProcess
from lorogo_testing.virtual_loop import BEGIN, SimLoop
from lorogo_transport.errors import TransportError
from lorogo_transport.stores.statuses import Statuses
from tests.simulation import chance
from tests.simulation.checks import Checker, Violation, all_checkers
from tests.simulation.checks.on_disk import AnswersAreOnDisk
from tests.simulation.checks.served import Served, ServedWhole
from tests.simulation.machine import DATA, Machine
from tests.simulation.people import Person, Rogue
from tests.simulation.plan import ANYTHING, KINDS, Fault, Plan, Wish
from tests.simulation.platter import Platter
from tests.simulation.record import Record
from tests.simulation.trace import Trace
from tests.simulation.weather import StormyWeather

REST_SECONDS = 150.0  # of virtual time, within which everything must be whole after the faults have stopped
_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
_SWAPS = f"$O.{subjects.SNAPSHOT_BUCKET}.M."  # what makes a snapshot or a tombstone the stored one
_UNSYNCED_SECONDS = 6.0  # that a broker may lose with its power
_HELD_SECONDS = 10.0  # longer than a lease, and than any client waits for an answer and repeats its request

current: Trace | None = None


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, wish: Wish = ANYTHING) -> None:
        global current  # noqa: PLW0603  # one run at a time, and logs have no other way to it
        self.loop = SimLoop(random.Random(seed))
        self.rng = chance.begin(seed, self.loop.time)
        self.plan = Plan.draw(seed, self.rng, wish)
        self.trace = current = Trace(self.loop.time)
        self.documents = [f"doc-{number}" for number in range(self.plan.documents)]
        self.processes: list[SimulatedProcess] = []
        self.resting = False
        self._resets: set[str] = set()
        self.weather = StormyWeather(self._chance())
        self.record = Record(self.loop.time)
        self.record.broken = self.loop.stop
        self.nats = MemoryNats(
            now_ns=lambda: chance.WALL_BEGIN_NS + int(self.loop.time() * 1e9),
            rng=self._chance(),
            max_payload=self.plan.max_payload,
            fault_model=self.weather,
            observer=self.record,
        )
        self.machines = [Machine(self, number, self._chance()) for number in range(self.plan.servers)]
        self.people = [
            Person(self, number, self._chance(), kept=self.rng.random() < self.plan.kept)
            for number in range(self.plan.clients)
        ]
        platters = {machine.name: Platter(machine.disk, f"{DATA}/journal/00") for machine in self.machines}
        on_disk = AnswersAreOnDisk(self.record, platters, damaged=self.plan.harms == "journal")
        self.checkers: list[Checker] = [
            *all_checkers(self, ahead=self.ahead),
            on_disk,
            ServedWhole(self.record, platters, self),
        ]
        self.record.checkers = self.checkers

    def _chance(self) -> random.Random:
        return random.Random(self.rng.getrandbits(64))

    # --- what checkers and people ask ----------------------------------------------------------------

    @property
    def clients(self) -> list[Person]:
        return self.people

    async def fresh(self, document_id: str) -> Loaded:
        """Return what a server without state would load now."""
        for machine in self.machines:
            if machine.server is not None and machine.server.reconciler is not None:
                return await machine.server.reconciler._repair.load(document_id)
        raise Violation("recovered", "no server is there", document_id)

    def ahead(self, line: str) -> bool:
        """True if that server's wall clock is, or was, ahead of the broker's."""
        jumps = "clock-jump" in self.plan.kinds
        return jumps or any(one.name == line and one.clock.offset_ns > 0 for one in self.machines)

    def served(self, line: str, document: str) -> Served | None:
        """The document in the memory of a server; None: it is not loaded there, or deleted."""
        server = next((one.server for one in self.machines if one.name == line), None)
        host = None if server is None else server.hosts.get(document)
        if host is None or not host.is_loaded or host.loaded.intake.deleted:
            return None
        ends = crdt.counters(host.loaded.intake.replica.version().vector)
        return Served(ends, bool(host.incomplete))

    def connection(self, line: str) -> object | None:
        """The connection over which a server answers now; None: it does not."""
        machine = next(one for one in self.machines if one.name == line)
        server, process = machine.server, machine.process
        if server is None or process is None or machine.line is None or server.recovery is None:
            return None
        bus = machine.line._bus
        answers = process.runs and server.ready and bus.connected and not bus._link.silent
        return (id(server), server.recovery._connections) if answers else None

    def crashed(self, who: str, error: BaseException) -> None:
        """Record that something ended with an unplanned exception."""
        self.trace.crashes.append(f"{who}: {error!r}")

    def sample(self, person: Person) -> None:
        """Record the states that sessions show."""
        for name, session in person.sessions.items():
            self.record.sampled(person.name, name, session)

    def committed(self, person: Person, session: Session) -> None:
        self.record.committed(person.name, session.document_id, session)

    def flushed(self, person: Person, session: Session) -> None:
        self.record.flushed(person.name, session.document_id, session)

    # --- the run -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live through it. Raises Violation, Deadlock, OutOfTurns."""
        try:
            self.loop.run_until_complete(self._main())
        except RuntimeError:
            if self.record.violation is None:
                raise
            raise self.record.violation from None

    @property
    def seconds(self) -> float:
        """Return the passed virtual time."""
        return self.loop.time() - BEGIN

    def close(self) -> None:
        """Drop everything, without closing anything."""
        global current  # noqa: PLW0603
        current = None
        for process in self.processes:
            process.kill()
            process.discard_tasks()
        self.loop.close()

    async def _main(self) -> None:
        for machine in self.machines:
            machine.start()
        for person in self.people:
            self.loop.call_later(self.rng.random() * 5, person.start)
        if self.plan.rogue:
            Rogue(self, self._chance()).start()
        for fault in self.plan.faults:
            await asyncio.sleep(max(0.0, BEGIN + fault.at - self.loop.time()))
            self._check()
            self._strike(fault)
        await asyncio.sleep(max(0.0, BEGIN + self.plan.seconds - self.loop.time()))
        self._calm()
        await self._rest()
        self._check()

    def _check(self) -> None:
        """Raise the violation or the crash that was noticed meanwhile."""
        if self.record.violation is not None:
            raise self.record.violation
        if self.trace.crashes:
            raise Violation("crash", self.trace.crashes[0])
        if self.loop.uncaught:
            stray = self.loop.uncaught[0]
            raise Violation("crash", f"{stray.get('message')}: {stray.get('exception')!r}")

    def _calm(self) -> None:
        """The faults stop: everything is there again, and works."""
        self.trace.note("the faults stop")
        self.weather.calm()
        self.nats.heal()
        for machine in self.machines:
            machine.disk.repair()
            if machine.process is not None and machine.process.paused:
                self.loop.resume(machine.process)
            machine.start()
            if machine.line is not None:
                machine.line.end_partition()
                machine.line.heal()
        for person in self.people:
            if person.process is not None and person.process.paused:
                self.loop.resume(person.process)
            person.start()
            if person.line is not None:
                person.line.end_partition()
                person.line.heal()
        self.resting = True

    async def _rest(self) -> None:
        """Wait until everything is whole; then let the checkers look."""
        ends = self.loop.time() + REST_SECONDS
        # another incarnation begins
        passes = {machine.server: passes_before(machine) for machine in self.machines}
        while unrest := self._unrest(passes):
            self._check()
            if self.loop.time() > ends:
                raise Violation("recovered", f"{REST_SECONDS:g} s after the faults: {'; '.join(unrest)}")
            await self._reset()
            await asyncio.sleep(_LOOK_SECONDS)
        self.trace.note("at rest")
        while not await self._whole(last=self.loop.time() > ends):
            await asyncio.sleep(_AGAIN_SECONDS)
            self.record.forget_fresh()
            self._check()

    async def _whole(self, *, last: bool) -> bool:
        """True if the checkers are content; missing content may come with the next reconciliation."""
        try:
            for checker in self.checkers:
                await checker.at_rest(self)
        except Violation:
            if last:
                raise
            return False
        return True

    async def _reset(self) -> None:
        """Do as an operator does about documents that the faults brought into ERROR: once for each."""
        for name, (entry, _) in list(self.record.statuses.items()):
            if isinstance(entry.status, Failed) and name not in self._resets:
                self._resets.add(name)
                self.trace.note("reset", document=name)
                line = self.nats.connect("operator")
                with suppress(TransportError):  # another writer was faster
                    down = Down(self.nats.now_ns())
                    await Statuses(line).write(name, down, expected_revision=entry.revision)
                await line.close()

    def _unrest(self, passes: dict[Server | None, int]) -> list[str]:
        words: list[str] = []
        for machine in self.machines:
            server = machine.server
            if server is None or not server.ready:
                words.append(f"{machine.name} does not serve")
                continue
            stats = server.stats()
            if int(str(stats["reconcile_passes"])) <= passes.get(server, 0) or stats["reconcile"] != "idle":
                words.append(f"{machine.name} reconciles")
            elif stats["reconcile_unread"] or stats["reconcile_waiting"]:
                words.append(f"{machine.name} has documents that it could not reconcile")
            elif stats["reconcile_unsettled"]:
                words.append(f"{machine.name} restores documents")
            words += [
                f"{name} must be stored"
                for name, host in server.hosts.items()
                if host.state.memory_is_only_copy
            ]
        for person in self.people:
            words += person.unrest
        return words or self._apart()

    def _apart(self) -> list[str]:
        """Replicas of one document that do not have the same history."""
        for name in self.documents:
            vectors = {
                crdt.vector_items(person.sessions[name].version().vector)
                for person in self.people
                if name in person.sessions
            }
            if len(vectors) > 1:
                return [f"replicas of {name} differ"]
        return []

    # --- faults --------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        machine = self.machines[fault.target % len(self.machines)]
        person = self.people[fault.target % len(self.people)]
        self.trace.note(f"FAULT {fault.kind}", target=fault.target, seconds=round(fault.seconds, 2))
        self.record.facts.add("fault", "", KINDS.index(fault.kind), fault.target, fault.seconds, fault.roll)
        match fault.kind:
            case "server-kill":
                machine.kill(power=False)
            case "server-power":
                machine.kill(power=True)
            case "server-in-write":
                machine.disk.stop_in(1 + int(fault.roll * 12), lambda: machine.kill(power=True))
            case "server-pause":
                self._pause(machine.process, fault.seconds)
            case "server-stop":
                machine.stop()
            case "server-cut":
                self._cut(machine.line, fault.seconds)
            case "server-parted":
                self._part(machine.line, fault)
            case "client-kill":
                person.kill()
            case "client-pause":
                self._pause(person.process, fault.seconds)
            case "client-cut":
                self._cut(person.line, fault.seconds)
            case "client-parted":
                self._part(person.line, fault)
            case "broker-restart":
                self.nats.restart(fault.seconds / 4)
            case "site-power":
                for one in self.machines:
                    one.kill(power=True)
                self._lose(fault)
            case "stream-rewind" | "stream-hole" | "stream-gone" | "snapshots-gone" | "everything-gone":
                self._lose(fault)
            case "journal-flip":
                machine.kill(power=False)
                self.trace.note("flipped", what=machine.disk.flip_bit())
            case "disk-full":
                machine.disk.fill()
                self.loop.call_later(fault.seconds, machine.disk.repair)
            case "disk-slow":
                machine.disk.slow(fault.seconds / 10)
                self.loop.call_later(fault.seconds, machine.disk.repair)
            case "clock-jump":
                machine.clock.offset_ns = int((fault.roll - 0.5) * 7200e9)
            case "storm":
                self.weather.storm(fault.roll)
                self.loop.call_later(fault.seconds, self.weather.usual)
            case "stale-reads":
                self.weather.stale(1 + int(fault.roll * 10))
                self.loop.call_later(fault.seconds, self.weather.usual)
            case "compact":
                if machine.server is not None:
                    for host in machine.server.hosts.values():
                        host.due.want("asked")
            case "swap-held":
                self.weather.hold(machine.name, "ask", _SWAPS, _HELD_SECONDS + fault.seconds)
            case "swap-unheard":
                self.weather.hold(machine.name, "answer", _SWAPS, _HELD_SECONDS + fault.seconds)

    def _pause(self, process: SimulatedProcess | None, seconds: float) -> None:
        if process is None or not process.runs:
            return
        process.pause()
        self.loop.call_later(seconds, self._resume, process)

    def _resume(self, process: SimulatedProcess) -> None:
        if process.alive and process.paused:
            self.loop.resume(process)

    def _cut(self, line: MemoryTransport | None, seconds: float) -> None:
        if line is not None:
            line.cut()
            self.loop.call_later(seconds, line.heal)

    def _part(self, line: MemoryTransport | None, fault: Fault) -> None:
        """As a switch that has died: the ends notice after a while, or when it works again."""
        if line is not None:
            line.partition(fault.seconds * 2 * fault.roll)
            self.loop.call_later(fault.seconds, line.end_partition)

    def _lose(self, fault: Fault) -> None:
        """The broker stops, its files are damaged, and it starts again."""
        nats, wal = self.nats, subjects.WAL_STREAM
        store = nats.stores.get(wal)
        if store is None:
            return  # lost before, and it was not created again
        last = store.state(0).last_sequence

        def damage() -> None:
            match fault.kind:
                case "stream-rewind" | "site-power":
                    nats.rewind(wal, int(last * fault.roll))
                    if fault.target % 2:  # it was power, and none of its streams was synced
                        since_ns = nats.now_ns() - int(fault.roll * _UNSYNCED_SECONDS * 1e9)
                        nats.rewind_to(subjects.SNAPSHOT_STREAM, since_ns)
                        nats.rewind_to(subjects.STATUS_STREAM, since_ns)
                case "stream-hole":
                    first = int(last * fault.roll) + 1
                    nats.lose_messages(wal, range(first, first + 1 + int(fault.seconds * 3)))
                case "stream-gone":
                    nats.lose_stream(wal)
                case "snapshots-gone":
                    nats.lose_stream(subjects.SNAPSHOT_STREAM)
                case _:
                    for name in (wal, subjects.SNAPSHOT_STREAM, subjects.STATUS_STREAM):
                        nats.lose_stream(name)

        nats.restart(fault.seconds / 4, damage)


def passes_before(machine: Machine) -> int:
    """The number of passes that do not show the state from now on; one in progress is one of them."""
    if machine.server is None:
        return 0
    stats = machine.server.stats()
    return int(str(stats["reconcile_passes"])) + (stats["reconcile"] != "idle")

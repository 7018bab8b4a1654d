"""The task that samples servers and streams for the dashboard, `/metrics` and `/v1/overview`.

While a dashboard is open it samples every `sample_seconds`, else every 30 s. One sample is one request to all
servers and one to each stream. Documents are counted on request only, and the less often the longer it takes.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from lorogo_gateway.metrics.rates import (
    ChartSample,
    CounterDeltas,
    RecentTakeovers,
    StreamStates,
    Takeover,
    sample,
    takeovers,
)
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.ids import is_document_id
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import TransportError
from lorogo_transport.ports import StreamState, Transport
from lorogo_transport.rpc.discovery import ServerStats, server_stats
from lorogo_transport.stores.catalogue import snapshots
from lorogo_transport.stores.statuses import Statuses
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

WATCHED_SECONDS = 60.0  # a dashboard counts as open for so long after a request
IDLE_SECONDS = 30.0  # between two samples while no dashboard is open
_LOOK_SECONDS = 5.0  # timeout of a sample
_STREAM_SECONDS = 2.0
_CENSUS_SECONDS = 30.0  # timeout of a census
_CENSUS_SHARE = 20  # pause after a census, as a multiple of its duration
_FAILED_MAX = 100
_SAMPLE_SHARE = 0.8  # of `sample_seconds`: an earlier look adds no point to the charts

STATES = ("UP", "STARTING", "DOWN", "ERROR")


@dataclass(frozen=True, slots=True)
class FailedDocument:
    """A document in ERROR."""

    document: str
    trace: str
    time_ns: int


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Counts of all documents."""

    states: Mapping[str, int]
    failed: tuple[FailedDocument, ...]  # the newest
    top: tuple[tuple[str, int], ...]  # documents with the most messages in the WAL, and their counts


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The state of servers and streams at one time."""

    at: float
    time_ns: int
    connected: bool
    servers: tuple[ServerStats, ...] = ()
    streams: StreamStates = field(default_factory=StreamStates)


class Collector:
    """Samples servers and streams while it is entered."""

    def __init__(
        self, transport: Transport, settings: GatewaySettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self._transport = transport
        self._settings = settings or GatewaySettings()
        self._clock = clock or SystemClock()
        self.samples: deque[ChartSample] = deque(maxlen=self._settings.samples_max)  # oldest first
        self._recent = RecentTakeovers()
        self._progress = CounterDeltas()
        self._look: ClusterSample | None = None
        self._sampled_at: float | None = None
        self._looking = asyncio.Lock()
        self._watched_until = float("-inf")
        self._asked_until = float("-inf")
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._census: DocumentCounts | None = None
        self._census_task: asyncio.Task[None] | None = None
        self._census_due = float("-inf")

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def start(self) -> None:
        """Start sampling."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="collector")

    async def close(self) -> None:
        """Stop sampling. Idempotent."""
        tasks = [task for task in (self._task, self._census_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def takeovers(self) -> list[Takeover]:
        """The newest takeovers, newest first."""
        return list(self._recent.all)

    def watched(self) -> None:
        """Sample at the full rate for a minute: a dashboard is open."""
        now = self._clock.now()
        if self._watched_until < now:
            self._wake.set()
        self._watched_until = now + WATCHED_SECONDS

    async def newest(self, age_seconds_max: float | None = None, *, asked: bool = True) -> ClusterSample:
        """Return a state that is at most that old (default: `sample_seconds`), sampled now if necessary.

        `asked`: the caller may need a census soon, so take one, too.
        """
        most = self._settings.sample_seconds if age_seconds_max is None else age_seconds_max
        if asked:
            self._asked_until = self._clock.now() + WATCHED_SECONDS
        async with self._looking:  # concurrent callers share one look
            if self._look is None or self._clock.now() - self._look.at > most:
                await self._take()
            assert self._look is not None
            return self._look

    async def counted(self) -> DocumentCounts | None:
        """Return the newest census; waits only for the first one. None: it could not be taken."""
        look = await self.newest()
        if look.connected:
            self._begin_census()  # the look may have been taken without one
        if self._census is None and self._census_task is not None:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await asyncio.shield(self._census_task)
            except TimeoutError:
                pass
        return self._census

    # --- sampling ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            wait = self._due() - self._clock.now()
            if wait <= 0:
                try:
                    async with self._looking:
                        await self._take()
                except Exception:
                    log.exception("sampling failed")
                    await asyncio.sleep(IDLE_SECONDS)
                continue
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _due(self) -> float:
        """Return the time of the next look."""
        if self._look is None:
            return float("-inf")
        often = self._settings.sample_seconds
        watched = self._clock.now() < self._watched_until
        return self._look.at + (often if watched else max(often, IDLE_SECONDS))

    async def _take(self) -> None:
        """Look once; values that cannot be read are unknown."""
        connected = self._transport.bus.connected
        servers: list[ServerStats] = []
        streams = StreamStates()
        if connected:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    servers, streams = await asyncio.gather(self._servers(), self._streams())
            except TimeoutError:
                log.warning("servers or streams did not answer in time")
            except Exception:
                log.exception("reading servers and streams failed")
            if self._clock.now() < max(self._asked_until, self._watched_until):
                self._begin_census()
        now, time_ns = self._clock.now(), self._clock.wall_ns()
        self._recent.add(takeovers(servers))
        seconds = None if self._sampled_at is None else now - self._sampled_at
        rare = seconds is None or seconds >= _SAMPLE_SHARE * self._settings.sample_seconds
        if rare and (servers or streams.wal is not None):
            interval = self._progress.step(servers)
            self.samples.append(sample(time_ns, seconds, interval, servers, streams))
            self._sampled_at = now
        ordered = tuple(sorted(servers, key=lambda server: server.server_id))
        self._look = ClusterSample(now, time_ns, connected, ordered, streams)

    async def _servers(self) -> list[ServerStats]:
        try:
            found = await server_stats(self._transport.bus)
        except TransportError as error:
            log.info("reading server statistics failed", problem=str(error))
            return []
        return list({server.server_id: server for server in found}.values())

    async def _streams(self) -> StreamStates:
        names = (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM, subjects.REJECTED_STREAM)
        return StreamStates(*await asyncio.gather(*map(self._stream, names)))

    async def _stream(self, name: str) -> StreamState | None:
        try:
            return await self._transport.stream(name).state(timeout=_STREAM_SECONDS)
        except TransportError as error:
            log.debug("reading a stream's state failed", stream=name, problem=str(error))
            return None

    # --- counting documents -----------------------------------------------------------------------

    def _begin_census(self) -> None:
        going_on = self._census_task is not None and not self._census_task.done()
        if not going_on and self._clock.now() >= self._census_due:
            self._census_task = asyncio.get_running_loop().create_task(self._count(), name="census")

    async def _count(self) -> None:
        begun = self._clock.now()
        try:
            async with asyncio.timeout(_CENSUS_SECONDS):
                self._census = await census(self._transport, self._settings.top_documents)
        except (LorogoError, TimeoutError) as error:
            log.info("counting documents failed", problem=str(error) or "timeout")
        except Exception:
            log.exception("counting documents failed")
        now = self._clock.now()
        self._census_due = now + max(self._settings.sample_seconds / 2, _CENSUS_SHARE * (now - begun))


async def census(transport: Transport, top: int) -> DocumentCounts:
    """Count all documents. Raises TransportError."""
    states = dict.fromkeys(STATES, 0)
    failed: list[FailedDocument] = []
    seen: set[str] = set()
    async for document, entry in Statuses(transport).all():
        seen.add(document)
        match entry.status:
            case Up():
                states["UP"] += 1
            case Starting():
                states["STARTING"] += 1
            case Down():
                states["DOWN"] += 1
            case Failed(trace_id, time_ns):
                states["ERROR"] += 1
                failed.append(FailedDocument(document, trace_id, time_ns))
    counts = await transport.stream(subjects.WAL_STREAM).subjects(subjects.wal("*"))
    messages = {subjects.document_of(subject): count for subject, count in counts.items()}
    others = {*messages, *await snapshots(transport).names()} - seen
    states["DOWN"] += sum(map(is_document_id, others))
    failed.sort(key=lambda one: one.time_ns, reverse=True)
    most = heapq.nlargest(top, messages.items(), key=lambda one: (one[1], one[0]))
    return DocumentCounts(states, tuple(failed[:_FAILED_MAX]), tuple(most))

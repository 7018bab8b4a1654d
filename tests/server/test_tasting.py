"""The taster: an update that ends processes ends that one, and is refused."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_protocol import subjects
from lorogo_protocol.calls import Refused
from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.reasons import Reason
from lorogo_protocol.replies import Nack
from lorogo_server import ServerSettings
from lorogo_server.tasting import Taster, untasted
from tests.server.poison import deadly
from tests.server.support import Probe, Serve, Writer, until


@pytest.fixture
def taster() -> Iterator[Taster]:
    made = Taster(seconds=60.0)  # a busy machine must not decide
    made.start()
    yield made
    made.stop()


def test_loro_ends_the_process_that_decodes_a_forged_update() -> None:
    """The reason for all of this: should it fail one day, Loro has mended it."""
    code = "import sys; from lorogo_protocol import crdt; crdt.try_decoding(sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=deadly(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGABRT
    assert b"memory allocation" in done.stderr


def test_no_secret_of_ours_is_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It decodes what strangers wrote: there is nothing in it to be had."""
    monkeypatch.setenv("LOROGO_NATS_SEED", "s3cret")
    taster = Taster()
    taster.start()
    try:
        assert taster._process is not None
        environment = Path(f"/proc/{taster._process.pid}/environ").read_bytes()
    finally:
        taster.stop()
    assert b"PATH=" in environment
    assert b"s3cret" not in environment


def test_what_ends_a_taster_is_refused_and_the_next_is_tasted_again(taster: Taster) -> None:
    """We go on, and so does the tasting."""
    writer = Writer()
    for _ in range(2):
        taster.taste(writer.type("good"))
        with pytest.raises(InvalidUpdate, match="ends the process"):
            taster.taste(deadly())
    taster.taste(writer.type("good"))


@pytest.mark.parametrize(
    "data", [b"", b"loro", b"x" * 100, bytes(300_000)], ids=["empty", "cut", "junk", "large"]
)
def test_what_is_no_update_is_let_through(taster: Taster, data: bytes) -> None:
    """What is wrong with it is found, and told, by who imports it."""
    taster.taste(data)


def test_a_taster_that_somebody_killed_says_nothing_about_the_update(taster: Taster) -> None:
    """A good update must not be refused because a machine was short of memory."""
    assert taster._process is not None
    taster._process.kill()
    taster._process.wait()
    writer = Writer()
    taster.taste(writer.type("good"))
    with pytest.raises(InvalidUpdate):
        taster.taste(deadly())


def test_a_taster_that_does_not_answer_says_nothing_about_the_update() -> None:
    """Nor because it was slow; the one that did not answer is gone."""
    taster = Taster(seconds=0.05)
    taster.start()
    process = taster._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    taster.taste(Writer().type("good"))
    assert process.returncode is not None
    taster.stop()


def test_a_stopped_taster_leaves_no_process(taster: Taster) -> None:
    """The end of its input is its end."""
    process = taster._process
    assert process is not None
    taster.stop()
    assert process.returncode == 0
    taster.stop()


def test_without_a_taster_everything_is_let_through() -> None:
    """As on a server that an app runs inside itself."""
    untasted(deadly())


async def test_a_server_with_a_taster_refuses_a_deadly_update_for_good_and_serves_on(
    serve: Serve, probe: Probe, unique: str, taster: Taster
) -> None:
    """Its sender is told no, it is quarantined and leaves the WAL, and the document is as good as before."""
    await serve(ServerSettings(), taster=taster)  # with leases that outlast the start of another taster
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
    serve: Serve, probe: Probe, unique: str, taster: Taster
) -> None:
    """Otherwise it would end one server after another."""
    await serve(ServerSettings(), taster=taster)  # with leases that outlast the start of another taster
    parts = probe.split(deadly())
    await probe.put(unique, parts)
    await probe.start(unique)
    reply = await probe.answer()
    assert isinstance(reply, Nack)
    assert (reply.log_id, reply.reason) == (parts[0].log_id, Reason.INVALID_UPDATE)
    await probe.accept(unique, Writer().type("served"))


async def test_a_full_document_is_served_on_after_a_deadly_update(
    serve: Serve, probe: Probe, unique: str, taster: Taster
) -> None:
    """Whether there is room is asked after the tasting: that, too, decodes what a stranger sent."""
    await serve(ServerSettings(document_bytes_max=64), taster=taster)
    await probe.start(unique)
    assert len(deadly()) > 64
    assert (await probe.refuse(unique, deadly())).reason is Reason.INVALID_UPDATE
    assert (await probe.refuse(unique, Writer().type("much" * 64))).reason is Reason.DOCUMENT_FULL

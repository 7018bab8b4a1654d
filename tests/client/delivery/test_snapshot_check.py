"""Snapshots are decoded by a process of their own before a document is created for them."""

import asyncio

import pytest
from loro import ExportMode, LoroDoc

from lorogo_client import Refused, SessionClosed
from lorogo_client.delivery.snapshot_check import SnapshotChecks
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.stores import snapshot_decoder
from tests.server.poison import forged


def _snapshot() -> bytes:
    doc = LoroDoc()
    doc.get_text("t").insert(0, "hello")
    return doc.export(ExportMode.Snapshot())


async def test_a_snapshot_that_decodes_passes() -> None:
    """Several at once, too."""
    checks = SnapshotChecks()
    async with asyncio.timeout(30):
        await asyncio.gather(*(checks.check(_snapshot()) for _ in range(4)))
    checks.close()


@pytest.mark.parametrize(
    ("program", "reason", "why"),
    [
        ("import os; os.abort()", Reason.INVALID_UPDATE, "ends the process .SIGABRT."),
        ("import os; os.kill(os.getpid(), 11)", Reason.INVALID_UPDATE, "ends the process .SIGSEGV."),
        ("import os; os.kill(os.getpid(), 24)", Reason.TOO_LARGE, "more than 10 s of CPU"),
        ("print('long it holds too much', end='')", Reason.TOO_LARGE, "^it holds too much$"),
        ("print('invalid no', end='')", Reason.INVALID_UPDATE, "^not a whole Loro snapshot: no$"),
    ],
)
async def test_bytes_that_end_the_process_are_refused(program: str, reason: Reason, why: str) -> None:
    """The process of the app goes on, and gets the reason that a server would give."""
    checks = SnapshotChecks(program)
    with pytest.raises(Refused, match=why) as caught:
        await checks.check(_snapshot())
    assert caught.value.reason is reason
    checks.close()


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import os; os.kill(os.getpid(), 9)", "pass"])
async def test_what_says_nothing_about_the_bytes_refuses_nothing(program: str) -> None:
    """A process that cannot work, or is killed, leaves the decision to the owner of the document."""
    checks = SnapshotChecks(program)
    await checks.check(_snapshot())
    checks.close()


async def test_a_closed_client_checks_nothing() -> None:
    """It raises SessionClosed."""
    checks = SnapshotChecks()
    checks.close()
    with pytest.raises(SessionClosed):
        await checks.check(_snapshot())


def test_the_decoder_answers_as_the_owner_would() -> None:
    """It has one answer for a good snapshot, and names what is wrong with a forged one."""
    assert snapshot_decoder.outcome_of(_snapshot()) == snapshot_decoder.FINE
    assert snapshot_decoder.outcome_of(forged(_snapshot())).startswith(b"invalid ")

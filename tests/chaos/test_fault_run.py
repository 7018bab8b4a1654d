"""The drill as users run it: `lorogo chaos`, real processes, real faults."""

import asyncio
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lorogo_chaos import final_check, report
from lorogo_chaos.errors import ChaosError
from lorogo_chaos.fault_run import FaultRun, FaultRunResult, FaultRunSettings
from lorogo_chaos.faults import damage
from lorogo_chaos.faults.catalogue import WORDS
from lorogo_chaos.fleet.client_fleet import ClientFleet, documents_of
from lorogo_chaos.fleet.traces import made
from lorogo_chaos.processes.stack import ChaosStack, ChaosStackSettings
from lorogo_chaos.verdict import FinalContents, judge
from tests.cli.support import COMMAND, environment, lorogo, refused, said

SHORT = ("chaos", "--documents", "2", "--writers", "2", "--every", "0")
PATIENCE = 240.0  # a busy machine takes its time; nothing here is about speed


def test_the_list_shows_every_fault_and_runs_nothing(tmp_path: Path) -> None:
    """Name, what it does, whether it can be had here."""
    lines = said(lorogo("chaos", "--list", cwd=tmp_path)).splitlines()
    assert lines[0].split() == ["FAULT", "WHAT", "IT", "DOES", "POSSIBLE", "HERE"]
    found = {line.split()[0]: line for line in lines[1:] if not line.startswith(" ")}
    assert set(found) == set(WORDS)
    assert max(map(len, lines)) <= 80
    assert found["server-kill"].endswith(" yes")
    assert found["partition"].endswith(" no: needs a cluster: --nats three")
    assert list(tmp_path.iterdir()) == []


def test_the_help_says_what_an_exit_code_means_and_what_is_usual(tmp_path: Path) -> None:
    """Lost, in ERROR, or not verified; and how often a fault strikes."""
    words = " ".join(said(lorogo("chaos", "--help", cwd=tmp_path)).replace("│", " ").split())
    assert "is lost, a document is in the state ERROR, or the result could not be verified" in words
    _, _, every = words.partition("--every ")
    assert "[default: 5.0]" in every.partition(" --edits-per-second ")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nats", "two"), "one or three"),
        (("--only", "server-kil"), "server-kil"),
        (("--traces", "nowhere"), "nowhere"),
        (("--json", "nowhere/out.json"), "nowhere/out.json"),
        (("--json", "."), "cannot write .: "),
        (("--documents", "0"), "--documents"),
        (("--only", "partition", "--faults", "2"), "partition needs a cluster: --nats three"),
    ],
)
def test_what_cannot_be_drilled_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """A sentence and exit code 2, before anything is started."""
    result = lorogo("chaos", *arguments, cwd=tmp_path)
    assert words in refused(result)
    assert "starting" not in result.stderr.decode()


def test_a_refused_drill_leaves_no_file_behind(tmp_path: Path) -> None:
    """A refused run leaves no empty JSON file for a script, and does not change an existing one."""
    refused(lorogo("chaos", "--only", "server-kil", "--json", "out.json", cwd=tmp_path))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "out.json").write_text("before")
    refused(lorogo("chaos", "--only", "server-kil", "--json", "out.json", cwd=tmp_path))
    assert (tmp_path / "out.json").read_text() == "before"


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """The place for kept files must be a folder."""
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(ChaosError, match="file cannot be created"):
        async with ChaosStack(ChaosStackSettings(folder=place)):
            pass


def test_settings_without_an_end_are_refused() -> None:
    """A drill has a number of faults or of minutes."""
    with pytest.raises(ChaosError, match="faults or of minutes"):
        FaultRunSettings(faults=0)
    with pytest.raises(ChaosError, match="documents"):
        FaultRunSettings(documents=0)


@pytest.mark.parametrize("writers", [1, 2, 3, 4, 7])
def test_each_document_has_two_writers_if_there_are_two(writers: int) -> None:
    """So that edits are concurrent; and no writer is idle, if there are enough documents."""
    documents = [f"d{number}" for number in range(9)]
    hands = [documents_of(index, writers, documents) for index in range(writers)]
    for document in documents:
        assert sum(document in mine for mine in hands) == min(2, writers)
    assert all(hands)


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
def test_a_short_drill_loses_nothing(tmp_path: Path) -> None:
    """A server, NATS and a writer are killed: exit code 0, every ACKed edit is there, no process is left."""
    kinds = "server-kill,nats-kill,writer-kill"
    result = subprocess.run(
        [*COMMAND, *SHORT, "--faults", "3", "--only", kinds, "--json", "out.json", "--keep", "kept"],
        cwd=tmp_path,
        capture_output=True,
        env=environment(),
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["good"] is True
    assert found["faults"] == {"nats-kill": 1, "server-kill": 1, "writer-kill": 1}
    assert found["acked"] > 20
    assert (found["lost"], found["forgotten"], found["duplicated"]) == (0, 0, 0)
    assert {one["name"] for one in found["processes"]} >= {"server-1", "server-2", "nats-1", "writer-1"}
    assert "nothing lost: all " in result.stdout.decode()
    assert str(tmp_path / "kept") in result.stderr.decode()
    assert _mentioning(tmp_path) == []


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(PATIENCE)
def test_ctrl_c_ends_a_drill_with_what_is_known(tmp_path: Path) -> None:
    """The run heals its faults, waits for the ACKs, reads the documents and reports; no process is left."""
    command = [*COMMAND, *SHORT, "--minutes", "30", "--only", "link-delay", "--json", "-"]
    with subprocess.Popen(
        [*command, "--keep", str(tmp_path / "kept")],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as drill:
        assert drill.stderr is not None
        for line in drill.stderr:
            if "the faults begin" in line:
                break
        drill.send_signal(signal.SIGINT)
        output, words = drill.communicate(timeout=PATIENCE)
    assert "interrupted: finishing" in words
    assert "every process is killed and restarted: only data on disks counts" in words
    found = json.loads(output)
    assert drill.returncode == 0
    assert found["interrupted"] is True
    assert found["acked"] > 0
    assert found["lost"] == 0
    assert _mentioning(tmp_path) == []


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(PATIENCE)
def test_a_second_ctrl_c_ends_a_drill_at_once(tmp_path: Path) -> None:
    """The run prints no report, leaves no process, and exits as an interrupted command does."""
    command = [*COMMAND, *SHORT, "--minutes", "30", "--only", "link-delay", "--keep", str(tmp_path / "kept")]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as drill:
        assert drill.stderr is not None
        for line in drill.stderr:
            if "the faults begin" in line:
                drill.send_signal(signal.SIGINT)
            if "interrupted: finishing" in line:
                break
        drill.send_signal(signal.SIGINT)
        output, words = drill.communicate(timeout=PATIENCE)
    assert (drill.returncode, output) == (130, "")
    assert words.endswith("NOT VERIFIED: interrupted twice\n")
    assert _mentioning(tmp_path) == []


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(PATIENCE)
async def test_a_drill_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a new client is not given one ACKed edit, the exit code is 1 and the words name it."""
    taken: list[tuple[str, str]] = []
    honest = final_check.read_all

    async def sabotaged(url: str, documents: list[str], seconds: float) -> dict[str, FinalContents | None]:
        found = await honest(url, documents, seconds)
        document = documents[0]
        final = found[document]
        assert final is not None
        taken.append((document, final.marks[0]))
        return {**found, document: replace(final, marks=final.marks[1:])}

    monkeypatch.setattr(final_check, "read_all", sabotaged)
    settings = FaultRunSettings(documents=1, writers=2, faults=1, only=("writer-kill",), every_seconds=0)
    outcome: FaultRunResult = await FaultRun(settings, [made(100)]).run()
    assert report.exit_code(outcome) == 1
    document, mark = taken[-1]
    assert [(one.document, one.mark) for one in outcome.verdict.lost] == [(document, mark)]
    first, second, *_ = report.sentences(outcome)
    assert first.startswith("LOST: 1 of ")
    assert second.startswith(f"  {document}: edit {mark}, ACKed ")


@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(PATIENCE)
async def test_what_is_really_gone_is_found() -> None:
    """JetStream's files and the journals are deleted under the running stack: every ACKed edit is lost."""
    async with ChaosStack(ChaosStackSettings(servers=1)) as stack:
        fleet = ClientFleet(stack, ["a"], writers=1, traces=[made(100)], edits_per_second=50, seed=1)
        async with fleet:
            assert await fleet.recovered(time.monotonic(), PATIENCE) is not None
            assert await fleet.drain(PATIENCE) == []
            before = await final_check.read_all(stack.direct_url, ["a"], PATIENCE)
        assert judge(fleet.incarnations, before).good
        (server,), (node,) = stack.servers, stack.nodes
        await asyncio.gather(server.kill(), node.kill())
        for folder in (server.data, node.store / "jetstream"):
            await asyncio.to_thread(damage.lose_folder, folder, within=stack.folder)
        await stack.wait_ready()
        verdict = judge(fleet.incarnations, await final_check.read_all(stack.direct_url, ["a"], PATIENCE))
    assert verdict.acked > 0
    assert len(verdict.lost) == verdict.acked
    assert verdict.verified
    assert not verdict.good


def _mentioning(folder: Path) -> list[str]:
    """Processes whose command line names the folder."""
    if not Path("/proc/self").exists():
        return []
    found: list[str] = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line:
                found.append(line.decode(errors="replace"))
    return found

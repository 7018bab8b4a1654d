"""`lorogo trace`, and the log id that appears in every record of one update."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lorogo_cli.commands.trace import trace
from lorogo_cli.connect.connection_options import ConnectionOptions
from lorogo_cli.errors import CommandError
from tests.cli.support import ROOT, Running, lorogo, said, said_json

_APP = """
import asyncio, logging, sys
import lorogo_client
logging.basicConfig(stream=sys.stderr, level=logging.DEBUG)
async def main(url):
    async with lorogo_client.connect(url) as client, client.open("minutes") as session:
        session.doc.get_text("body").insert(0, "hello")
        print((await session.flush(timeout=30)).log_id)
asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str, Path]]:
    """A `lorogo dev --verbose` of this file's own, its NATS and its store."""
    cwd = tmp_path_factory.mktemp("dev")
    running = Running(["dev", "--port", "0", "--web-port", "0", "--verbose"], cwd=cwd, name="dev")
    try:
        found = re.search(r"NATS +(nats://\S+)", running.wait_for("asyncio.run(main())"))
        assert found is not None
        yield running, found[1], cwd / ".lorogo"
    finally:
        running.kill()


@pytest.mark.nats
@pytest.mark.slow
def test_one_id_leads_from_the_client_to_the_journal(dev: tuple[Running, str, Path], tmp_path: Path) -> None:
    """The client's log, the server's log, the journal, the feed and `lorogo trace` all have the log id."""
    running, url, store = dev
    ran = subprocess.run(
        [sys.executable, "-c", _APP, url],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    log_id = ran.stdout.strip()
    client = [line for line in ran.stderr.splitlines() if log_id in line]
    assert any("update sent" in line for line in client)
    acked = next(line for line in client if "update ACKed" in line)
    sequence = re.search(r"sequence=(\d+)", acked)
    assert sequence is not None

    accepted = next(line for line in running.wait_for_log("update accepted") if line["log_id"] == log_id)
    assert (accepted["document"], accepted["level"]) == ("minutes", "debug")
    assert accepted["sequence"] == int(sequence[1])
    assert log_id in {line["log_id"] for line in running.wait_for_log("update ACKed")}

    (journal,) = store.glob("server/**/journal/00")
    records = said(lorogo("log", "dump", str(journal), cwd=tmp_path)).splitlines()
    (record,) = [line for line in records if log_id in line]
    assert json.loads(record)["value"][2:5] == [accepted["epoch"], accepted["sequence"], log_id]

    nats = {"LOROGO_NATS": url}
    found = said_json(lorogo("trace", log_id, "--json", cwd=tmp_path, env=nats))
    assert (found["document"], found["known"], found["in_document"]) == ("minutes", True, True)
    assert found["wal"][0]["sequences"] == [accepted["sequence"]]
    assert found["journals"][0]["sequence"] == accepted["sequence"]
    shown = said(lorogo("trace", log_id, "--document", "minutes", "--since", "1h", cwd=tmp_path, env=nats))
    assert (
        f"verdict:      accepted: in the WAL at {accepted['sequence']}, in the journal of 1 server" in shown
    )
    assert f"trace id:     {found['trace_id']}" in shown
    assert len(found["trace_id"]) == 32


@pytest.mark.nats
@pytest.mark.slow
def test_what_a_command_saved_can_be_traced(dev: tuple[Running, str, Path], tmp_path: Path) -> None:
    """The receipt of a change names its update."""
    _, url, _ = dev
    nats = {"LOROGO_NATS": url}
    saved = said_json(lorogo("doc", "set", "note", "title", '"x"', "--json", cwd=tmp_path, env=nats))
    found = said_json(lorogo("trace", saved["log_id"], "--json", cwd=tmp_path, env=nats))
    assert found["journals"][0]["sequence"] == saved["sequence"]
    assert found["verdict"].startswith("accepted: in the WAL at ")


@pytest.mark.nats
@pytest.mark.slow
def test_an_unknown_update_is_exit_code_1(dev: tuple[Running, str, Path], tmp_path: Path) -> None:
    """The verdict on stdout is that the update was not found."""
    nats = {"LOROGO_NATS": dev[1]}
    result = lorogo("trace", "never-sent", cwd=tmp_path, env=nats)
    assert (result.returncode, result.stderr) == (1, b"")
    assert "verdict:      not found: it did not reach NATS" in result.stdout.decode()


@pytest.mark.parametrize(
    ("log_id", "since", "token", "words"),
    [
        ("a b", None, None, "'a b' is not a log id"),
        ("x", "soon", None, "'soon' is not a time: --since takes a time"),
        ("x", None, "a token", "the trace of an update needs the NATS user of an operator"),
    ],
)
async def test_an_invalid_question_is_refused_before_connecting(
    log_id: str, since: str | None, token: str | None, words: str
) -> None:
    """The error names a valid argument."""
    with pytest.raises(CommandError, match=words):
        await trace(ConnectionOptions("nats://127.0.0.1:1", token), log_id, "", since, as_json=False)


@pytest.mark.nats
@pytest.mark.slow
def test_an_id_may_begin_with_a_dash(dev: tuple[Running, str, Path], tmp_path: Path) -> None:
    """One id in 64 begins with a dash; an unknown option is still an error."""
    _, url, _ = dev
    nats = {"LOROGO_NATS": url}
    result = lorogo("trace", "-AHfSIyRfQL0grci5dg4G", "--json", cwd=tmp_path, env=nats)
    assert (result.returncode, json.loads(result.stdout)["known"]) == (1, False)
    assert b"--jsno" in lorogo("trace", "abc", "--jsno", cwd=tmp_path, env=nats).stderr

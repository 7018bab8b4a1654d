"""The commands on a closed NATS: who they are comes from files or the environment; every no is a sentence."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lorogo_server import Server, ServerSettings
from lorogo_transport.stores.catalogue import read_summary
from tests.cli.support import lorogo, refused, said, said_json
from tests.security.closed import OTHER_KEY, Closed, closed_nats, mint

pytestmark = pytest.mark.nats


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with (
        closed_nats(tmp_path) as made,
        Server(made.server, ServerSettings(), data=tmp_path / "server", authority=made.authority),
    ):
        yield made


def _secret(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.touch(0o600)
    path.write_text(text + "\n")
    return str(path)


async def _run(
    closed: Closed, folder: Path, *arguments: str, **env: str
) -> subprocess.CompletedProcess[bytes]:
    return await asyncio.to_thread(lorogo, *arguments, cwd=folder, env={"LOROGO_NATS": closed.url, **env})


async def test_documents_with_a_token(closed: Closed, tmp_path: Path) -> None:
    """A token in a file or the environment does what it grants; more is a sentence, and nothing is sent."""
    token = mint({"plan": "admin", "book": "read"})
    file = _secret(tmp_path, "ann.token", token)
    as_ann = ("--token-file", file)
    for typed in ("doc delete plan --yes", "doc get plan", "compact plan"):
        assert "there is no document 'plan'" in refused(await _run(closed, tmp_path, *typed.split(), *as_ann))
    assert not (await read_summary(closed.server, "plan")).known
    said(await _run(closed, tmp_path, "doc", "set", "plan", "title", '"hello"', *as_ann))
    got = said_json(await _run(closed, tmp_path, "doc", "get", "plan", "--json", LOROGO_TOKEN=token))
    assert got["value"] == {"title": "hello"}
    rows = said_json(await _run(closed, tmp_path, "doc", "history", "plan", "--json", LOROGO_TOKEN_FILE=file))
    assert len(rows) == 1
    facts = said_json(await _run(closed, tmp_path, "status", "plan", "--json", *as_ann))
    assert (facts["access"], facts["owner"]["sequence"]) == ("admin", rows[0]["sequence"])
    assert "purged" in said(await _run(closed, tmp_path, "compact", "plan", *as_ann))

    words = refused(await _run(closed, tmp_path, "doc", "set", "book", "title", '"no"', *as_ann))
    assert "the token of 'ann' only grants read on 'book'; write is needed" in words
    words = refused(await _run(closed, tmp_path, "doc", "get", "other", *as_ann))
    assert "the token of 'ann' does not grant 'other'" in words
    words = refused(await _run(closed, tmp_path, "doc", "get", "book", *as_ann))
    assert "there is no document 'book'" in words
    for command in (("status",), ("feed",)):
        words = refused(await _run(closed, tmp_path, *command, *as_ann))
        assert "needs the NATS user of an operator (--nats-seed)" in words
    assert "iolation" not in closed.nats.log_path.read_text()


async def test_an_operator_has_a_seed(closed: Closed, tmp_path: Path) -> None:
    """With it `status` lists everything; calls that change documents are made with a token besides."""
    seed = _secret(tmp_path, "operator.seed", closed.seeds["operator"])
    token = _secret(tmp_path, "root.token", mint({"*": "admin"}))
    said(await _run(closed, tmp_path, "doc", "set", "plan", "a", '"b"', "--token-file", token))
    listed = said_json(await _run(closed, tmp_path, "status", "--json", "--nats-seed", seed))
    assert [row["document"] for row in listed["documents"]] == ["plan"]
    assert len(listed["servers"]) == 1
    words = refused(await _run(closed, tmp_path, "compact", "plan", "--nats-seed", seed))
    assert "a token that grants admin on 'plan' is missing: add --token-file FILE" in words
    both = ("--nats-seed", seed, "--token-file", token)
    assert "saved" in said(await _run(closed, tmp_path, "doc", "set", "plan", "a", '"c"', *both))
    shown = said_json(await _run(closed, tmp_path, "status", "plan", "--json", *both))
    assert shown["owner"]["sequence"] == 2


async def test_a_seed_for_nats_and_a_token_for_the_owner(closed: Closed, tmp_path: Path) -> None:
    """With both, the connection is the operator's, also for documents that only a pattern covers."""
    seed = _secret(tmp_path, "operator.seed", closed.seeds["operator"])
    token = _secret(tmp_path, "ann.token", mint({"plan-*": "write"}))
    both = ("--nats-seed", seed, "--token-file", token)
    assert "saved" in said(await _run(closed, tmp_path, "doc", "set", "plan-1", "a", '"b"', *both))
    assert said_json(await _run(closed, tmp_path, "doc", "get", "plan-1", "--json", *both))["value"] == {
        "a": "b"
    }
    words = refused(await _run(closed, tmp_path, "doc", "set", "other", "a", '"b"', *both))
    assert "the token of 'ann' does not grant 'other'" in words


async def test_a_refused_command_prints_the_reason(closed: Closed, tmp_path: Path) -> None:
    """No token, a wrong one, one that ended, a wrong seed, a file that others may read: a sentence each."""
    get = ("doc", "get", "plan")
    words = refused(await _run(closed, tmp_path, *get))
    assert f"NATS at {closed.url} requires credentials: use --token-file or --nats-seed" in words

    wrong = mint({"plan": "write"}, key=OTHER_KEY)
    words = refused(await _run(closed, tmp_path, *get, LOROGO_TOKEN=wrong))
    assert f"NATS at {closed.url} refuses this token" in words
    assert wrong not in words

    words = refused(await _run(closed, tmp_path, *get, LOROGO_TOKEN=mint({"plan": "write"}, seconds=-60)))
    assert "the token of 'ann' has expired: get a new one" in words

    words = refused(await _run(closed, tmp_path, *get, LOROGO_TOKEN="not.a.token"))
    assert "the token cannot be used" in words

    words = refused(await _run(closed, tmp_path, *get, LOROGO_NATS_SEED="SU-no-seed"))
    assert "SU-no-seed" not in words
    assert "seed" in words

    file = tmp_path / "open.token"
    file.write_text(mint({"plan": "write"}))
    file.chmod(0o644)
    words = refused(await _run(closed, tmp_path, *get, "--token-file", str(file)))
    assert "chmod 600" in words
    words = refused(await _run(closed, tmp_path, *get, "--token-file", str(tmp_path / "none")))
    assert "the token cannot be read" in words


@pytest.mark.parametrize(
    "command",
    [("doc", "get", "plan"), ("status",), ("reset", "plan"), ("feed",), ("serve",), ("gateway",)],
)
async def test_no_password_is_an_argument(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Every user of the machine can list arguments, so the command refuses a password and does
    not print it.
    """
    url = "nats://ann:hunter2@127.0.0.1:1"
    words = refused(await asyncio.to_thread(lorogo, *command, "--nats", url, cwd=tmp_path))
    assert "every user who lists the processes" in words
    assert "hunter2" not in words


async def test_a_password_in_the_environment_is_fine(tmp_path: Path) -> None:
    """The command tries to connect: here no server answers."""
    env = {"LOROGO_NATS": "nats://ann:hunter2@127.0.0.1:1"}
    words = refused(await asyncio.to_thread(lorogo, "doc", "get", "plan", cwd=tmp_path, env=env))
    assert "nothing answers at nats://127.0.0.1:1" in words
    assert "hunter2" not in words

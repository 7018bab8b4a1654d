"""`lorogo auth setup`, `lorogo auth`, and `lorogo dev --closed`: a closed lorogo as its operator makes it."""

import json
import re
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lorogo_cli.connect import closed_folder
from lorogo_cli.errors import CommandError
from lorogo_protocol.access import tokens
from lorogo_transport.auth import accounts
from lorogo_transport.auth.seeds import InvalidSeed
from lorogo_transport.nats.embedded import EmbeddedNats, find_nats_server
from lorogo_transport.secret_files import SecretUnusable
from tests.cli.support import COMMAND, Running, environment, lorogo, refused, said, until

SECRET = re.compile(r"S[AU][A-Z2-7]{56}")
CLOSED = {"LOROGO_OPEN": ""}


def test_setup_writes_all_of_it_for_its_owner_alone(tmp_path: Path) -> None:
    """The folder has mode 0700, the files 0600; nats.conf and the output have no secret; the keys fit
    together.
    """
    words = said(lorogo("auth", "setup", "closed", cwd=tmp_path))
    folder = tmp_path / "closed"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = {path.name: path for path in folder.iterdir()}
    seeds = {f"{name}.seed" for name in accounts.KINDS}
    assert set(files) == seeds | {"nats.conf", "accounts.conf", "tokens.jwk", "keys.jwks"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
    secrets = [files[name].read_text().strip() for name in seeds] + [
        json.loads(files["tokens.jwk"].read_text())["d"]
    ]
    assert len(set(secrets)) == 8
    public = (files[name].read_text() for name in ("nats.conf", "accounts.conf", "keys.jwks"))
    for open_text in (words, *public):
        assert SECRET.search(open_text) is None
        assert not any(secret in open_text for secret in secrets)
    key = tokens.key_of(files["tokens.jwk"].read_text())
    text = tokens.mint(key, subject="ann", documents={"d1": "read"}, expires=200.0, now=100.0, token_id="t1")
    assert tokens.keys_of(files["keys.jwks"].read_text()).verify(text, now=150.0).subject == "ann"
    assert "nats-server -c" in words
    checked = subprocess.run(
        [find_nats_server(), "-t", "-c", files["nats.conf"]], capture_output=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_setup_prints_a_command_that_finds_nats_server(tmp_path: Path) -> None:
    """The printed command has the whole path if the shell would not find the program."""
    program = find_nats_server()
    there = {"PATH": str(program.parent), "LOROGO_NATS_SERVER": str(program)}
    assert "1. nats-server -c" in said(lorogo("auth", "setup", "a", cwd=tmp_path, env=there))
    elsewhere = there | {"PATH": str(tmp_path)}
    words = said(lorogo("auth", "setup", "b", cwd=tmp_path, env=elsewhere))
    assert f"1. {shlex.quote(str(program))} -c" in words


def test_setup_writes_over_nothing(tmp_path: Path) -> None:
    """An existing folder keeps its files and its mode; the second setup is refused."""
    there = tmp_path / "there"
    there.mkdir(mode=0o755)
    (there / "mine").write_text("precious")
    assert "is not empty" in refused(lorogo("auth", "setup", "there", cwd=tmp_path))
    assert [path.name for path in there.iterdir()] == ["mine"]
    assert stat.S_IMODE(there.stat().st_mode) == 0o755
    said(lorogo("auth", "setup", "new", cwd=tmp_path))
    before = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    refused(lorogo("auth", "setup", "new", cwd=tmp_path))
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before
    (tmp_path / "file").touch()
    assert "cannot make the folder" in refused(lorogo("auth", "setup", "file", cwd=tmp_path))


def test_a_folder_that_is_damaged_is_not_used(tmp_path: Path) -> None:
    """A seed that is readable by others, missing or cut off is an error, and no new seed is created."""
    folder = closed_folder.make_once(tmp_path / "keys")
    assert closed_folder.make_once(tmp_path / "keys").seeds == folder.seeds
    assert not any(seed in repr(folder) for seed in folder.seeds.values())
    seed = tmp_path / "keys" / "server.seed"
    seed.chmod(0o644)
    with pytest.raises(SecretUnusable, match="chmod 600"):
        closed_folder.make_once(tmp_path / "keys")
    seed.chmod(0o600)
    seed.write_text(folder.seeds["server"][:-1])
    with pytest.raises(InvalidSeed, match=r"server\.seed"):
        closed_folder.make_once(tmp_path / "keys")
    seed.unlink()
    with pytest.raises(SecretUnusable, match="there is no"):
        closed_folder.make_once(tmp_path / "keys")
    (tmp_path / "keys" / "keys.jwks").unlink()
    with pytest.raises(CommandError, match="is not empty"):
        closed_folder.make_once(tmp_path / "keys")


def test_auth_says_what_is_missing(tmp_path: Path) -> None:
    """Keys, seeds, a NATS that answers: each in one sentence, before anything is done."""
    said(lorogo("auth", "setup", "closed", cwd=tmp_path))
    nowhere = {"LOROGO_NATS": "nats://127.0.0.1:1"}
    assert "needs the keys" in refused(lorogo("auth", cwd=tmp_path, env=nowhere))
    keys = ["--keys", "closed/keys.jwks"]
    assert "the seed of issuer is missing" in refused(lorogo("auth", *keys, cwd=tmp_path, env=nowhere))
    assert "there is no" in refused(lorogo("auth", *keys, "--seeds", "else", cwd=tmp_path, env=nowhere))
    away = refused(lorogo("auth", *keys, "--seeds", "closed", cwd=tmp_path, env=nowhere))
    assert "nothing answers" in away
    assert "nats-server -c DIR/nats.conf" in away
    assert "lorogo dev" not in away


@pytest.mark.nats
async def test_auth_does_not_run_on_a_nats_that_is_open_or_anothers(
    tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    """On an open NATS tokens are useless; on one with other seeds, NATS would not call this service."""
    said(lorogo("auth", "setup", "closed", cwd=tmp_path))
    said(lorogo("auth", "setup", "other", cwd=tmp_path))
    options = ["--keys", "closed/keys.jwks", "--seeds", "closed"]
    open_words = refused(lorogo("auth", *options, cwd=tmp_path, env={"LOROGO_NATS": nats_server.url}))
    assert "accepts anonymous clients" in open_words
    assert "--open" not in open_words
    async with EmbeddedNats(
        tmp_path / "nats", configuration=closed_folder.read(tmp_path / "other").accounts
    ) as nats:
        words = refused(lorogo("auth", *options, cwd=tmp_path, env={"LOROGO_NATS": nats.url}))
    assert "does not know the seeds" in words


@pytest.mark.nats
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("auth", "auth-list", "has the key of auth.seed and auth-list.seed for another user"),
        ("auth", "system", "has the key of auth.seed and system.seed for another user"),
        ("auth-list", "system", "has the key of auth-list.seed and system.seed for another user"),
        ("issuer", None, "rejects answers signed with issuer.seed"),
    ],
)
async def test_auth_does_not_say_that_it_runs_with_the_wrong_seeds(
    tmp_path: Path, first: str, second: str | None, words: str
) -> None:
    """With exchanged seeds or a foreign issuer every token would be refused, so the service ends with the
    reason.
    """
    made = closed_folder.make_once(tmp_path / "closed")
    seeds = dict(made.seeds)
    if second is None:
        seeds[first] = closed_folder.make_once(tmp_path / "other").seeds[first]
    else:
        seeds[first], seeds[second] = seeds[second], seeds[first]
    for name in (first, second or first):
        (tmp_path / "closed" / f"{name}.seed").write_text(seeds[name])
    options = ["--keys", "closed/keys.jwks", "--seeds", "closed"]
    async with EmbeddedNats(tmp_path / "nats", configuration=made.accounts) as nats:
        ended = lorogo("auth", *options, cwd=tmp_path, env={"LOROGO_NATS": nats.url})
    assert ended.returncode == 2
    assert words in ended.stderr.decode().splitlines()[-1]
    assert ended.stdout == b""


@contextmanager
def _nats_server(folder: Path) -> Iterator[str]:
    """nats-server as the operator runs it, but on a port that is free."""
    conf = folder / "nats.conf"
    conf.write_text(
        conf.read_text().replace("127.0.0.1:4222", "127.0.0.1:-1") + f'\nports_file_dir: "{folder}"\n'
    )
    with (folder / "nats.log").open("wb") as log:
        process = subprocess.Popen([find_nats_server(), "-c", conf], stdout=log, stderr=log)
    try:
        ports = until("nats-server", lambda: next(iter(folder.glob("*.ports")), None))
        yield until("its port", lambda: _port(ports))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _port(ports: Path) -> str | None:
    try:
        return str(json.loads(ports.read_text())["nats"][0])
    except ValueError:
        return None  # half written


@pytest.mark.nats
@pytest.mark.slow
def test_what_setup_says_next_works(tmp_path: Path) -> None:
    """nats-server, auth, serve; a token opens what it is granted, and nothing else; revoked, nothing."""
    said(lorogo("auth", "setup", "closed", cwd=tmp_path))
    folder = tmp_path / "closed"
    keys = ["--keys", "closed/keys.jwks"]
    with _nats_server(folder) as url:
        env = {**CLOSED, "LOROGO_NATS": url}
        auth = Running(["auth", "--seeds", "closed", *keys], cwd=tmp_path, name="auth", env=env)
        serve = Running(
            ["serve", "--nats-seed", "closed/server.seed", *keys], cwd=tmp_path, name="serve", env=env
        )
        try:
            auth.wait_for("lorogo auth is running")
            serve.wait_for_log("serving")
            mint = ["token", "mint", "--key", "closed/tokens.jwk", "--expires", "1h"]
            said(
                lorogo(
                    *mint,
                    "--subject",
                    "ann",
                    "--grant",
                    "minutes-*=write",
                    "--id",
                    "ann1",
                    "--out",
                    "ann.token",
                    cwd=tmp_path,
                )
            )
            ann = ["--token-file", "ann.token"]
            until(
                "the list of what is revoked",
                lambda: (
                    lorogo("doc", "set", "minutes-1", "t", '"x"', *ann, cwd=tmp_path, env=env).returncode == 0
                ),
            )
            assert json.loads(said(lorogo("doc", "get", "minutes-1", *ann, cwd=tmp_path, env=env))) == {
                "t": "x"
            }
            assert "does not grant" in refused(lorogo("doc", "get", "plan", *ann, cwd=tmp_path, env=env))
            assert "requires credentials" in refused(lorogo("doc", "get", "minutes-1", cwd=tmp_path, env=env))
            operator = ["--nats-seed", "closed/operator.seed"]
            assert "minutes-1" in said(lorogo("status", *operator, cwd=tmp_path, env=env))
            said(lorogo("token", "revoke", "ann1", *operator, cwd=tmp_path, env=env))
            refused(lorogo("doc", "get", "minutes-1", *ann, cwd=tmp_path, env=env))
            assert (auth.stop(), serve.stop()) == (0, 0)
        finally:
            auth.kill()
            serve.kill()
        text = (tmp_path / "ann.token").read_text().strip()
        for log in (auth.err, serve.err, folder / "nats.log"):
            assert text not in log.read_text()
            assert SECRET.search(log.read_text()) is None


@pytest.mark.nats
@pytest.mark.slow
def test_dev_closed_is_the_whole_thing(tmp_path: Path) -> None:
    """`dev --closed` makes its keys once, its printed commands work, and NATS refuses clients without a
    token.
    """
    dev = ["dev", "--closed", "--port", "0", "--web-port", "0"]
    running = Running(dev, cwd=tmp_path, name="dev", env=CLOSED)
    try:
        screen = running.wait_for("curl")
        token = tmp_path / ".lorogo" / "closed" / "keys" / "operator.token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / ".lorogo" / "closed").stat().st_mode) == 0o700
        assert token.read_text().strip() not in screen
        commands = re.findall(r"lorogo_cli ((?:doc|token) (?:[^\\\n]|\\\n)+)$", screen, re.MULTILINE)
        assert len(commands) == 4
        for command in commands:
            result = subprocess.run(
                ["/bin/sh", "-c", f"{shlex.join(COMMAND)} {command}"],
                cwd=tmp_path,
                capture_output=True,
                check=False,
                env=environment(**CLOSED),
                timeout=60,
            )
            assert result.returncode == 0, (command, result.stderr)
        curl = re.search(r"^  (curl .*)$", screen, re.MULTILINE)
        assert curl is not None
        got = subprocess.run(
            ["/bin/sh", "-c", f"{curl[1]} -s"], cwd=tmp_path, capture_output=True, check=True, timeout=60
        )
        assert json.loads(got.stdout) == {"title": "Hello"}
        url = re.search(r"nats://\S+", screen)
        assert url is not None
        assert "requires credentials" in refused(
            lorogo("doc", "get", "hello", cwd=tmp_path, env={"LOROGO_NATS": url[0]})
        )
        assert running.stop(signal.SIGINT) == 0
        before = (tmp_path / ".lorogo" / "closed" / "keys" / "tokens.jwk").read_bytes()
        running = Running(dev, cwd=tmp_path, name="again", env=CLOSED)
        again = running.wait_for("curl")
        url = re.search(r"nats://\S+", again)
        assert url is not None
        found = lorogo(
            "doc", "get", "hello", "--token-file", "ann.token", cwd=tmp_path, env={"LOROGO_NATS": url[0]}
        )
        assert json.loads(said(found)) == {"title": "Hello"}
        assert (tmp_path / ".lorogo" / "closed" / "keys" / "tokens.jwk").read_bytes() == before
        assert running.stop() == 0
    finally:
        running.kill()


@pytest.mark.nats
@pytest.mark.slow
def test_dev_is_open_and_says_so(tmp_path: Path) -> None:
    """To this machine alone: it listens on loopback, and its screen names the other way."""
    running = Running(["dev", "--port", "0", "--web-port", "0"], cwd=tmp_path, name="dev", env=CLOSED)
    try:
        screen = running.wait_for("asyncio.run")
        assert "every user of this machine can read and write" in screen
        assert "dev --closed" in screen
        assert set(re.findall(r"(?:nats|http)://([^:/]+)", screen)) == {"127.0.0.1"}
        assert running.stop() == 0
    finally:
        running.kill()

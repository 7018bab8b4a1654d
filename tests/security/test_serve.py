"""`lorogo serve` is closed unless the operator sets --open, and process lists show none of its secrets."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import nanoid
import pytest

from lorogo_client.tokens import new_key
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.auth import accounts, seeds
from lorogo_transport.clock import SystemClock
from lorogo_transport.errors import NoResponders
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.rpc.calls import Caller
from tests.cli.support import Running, lorogo, refused
from tests.e2e.support import eventually
from tests.security.closed import Closed, closed_nats, mint

pytestmark = pytest.mark.nats

CLOSED = {"LOROGO_OPEN": ""}
UNREACHABLE = "nats://127.0.0.1:1"


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with closed_nats(tmp_path) as made:
        yield made


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "some.jwks"
    path.touch(0o600)
    path.write_text('{"kty": "oct", "kid": "k1", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}')
    return path


def test_neither_keys_nor_open(tmp_path: Path) -> None:
    """The error is one sentence that names both options; nothing is started or written."""
    words = refused(lorogo("serve", "--nats", UNREACHABLE, cwd=tmp_path, env=CLOSED))
    assert "--keys" in words
    assert "--open" in words
    assert not (tmp_path / ".lorogo").exists()


def test_keys_and_open_contradict_each_other(tmp_path: Path, keys: Path) -> None:
    """The two options exclude each other."""
    words = refused(lorogo("serve", "--open", "--keys", str(keys), cwd=tmp_path, env=CLOSED))
    assert "contradicts" in words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is empty"),
        ("not json, but-secret", "not JSON"),
        ('{"keys": []}', "no key"),
        ('{"kty": "oct", "kid": "k1", "k": "YnV0LXNlY3JldA"}', "too short"),
        (None, "there is no"),
    ],
)
def test_keys_that_cannot_be_used(tmp_path: Path, content: str | None, words: str) -> None:
    """One sentence, without what is in the file."""
    path = tmp_path / "bad.jwks"
    if content is not None:
        path.touch(0o600)
        path.write_text(content)
    error = refused(lorogo("serve", "--keys", str(path), "--nats", UNREACHABLE, cwd=tmp_path, env=CLOSED))
    assert words in error
    assert "but-secret" not in error
    assert "YnV0" not in error


@pytest.mark.parametrize("workers", ["1", "2"])
def test_keys_on_a_nats_that_accepts_anonymous_clients(
    nats_server: EmbeddedNats, tmp_path: Path, keys: Path, workers: str
) -> None:
    """The server refuses to start: clients would not need a token."""
    arguments = ["serve", "--keys", str(keys), "--nats", nats_server.url, "--workers", workers]
    assert "accepts anonymous clients" in refused(lorogo(*arguments, cwd=tmp_path, env=CLOSED))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_journal_that_others_reach_needs_a_secret(tmp_path: Path, keys: Path, workers: str) -> None:
    """A copy of the journal would reveal every document without a token."""
    place = ("--durability", "replicated", "--journal-listen", "0.0.0.0:0", "--workers", workers)
    words = refused(
        lorogo("serve", "--keys", str(keys), "--nats", UNREACHABLE, *place, cwd=tmp_path, env=CLOSED)
    )
    assert "LOROGO_JOURNAL_SECRET" in words


def test_a_seed_that_others_can_read(tmp_path: Path, keys: Path) -> None:
    """A file that is not private is refused."""
    seed = tmp_path / "server.seed"
    seed.write_text("SUbut-secret")
    seed.chmod(0o644)
    words = refused(lorogo("serve", "--keys", str(keys), "--nats-seed", str(seed), cwd=tmp_path, env=CLOSED))
    assert "chmod 600" in words
    assert "but-secret" not in words


@pytest.mark.parametrize("command", ["serve", "gateway"])
@pytest.mark.parametrize("kind", ["account", "jwk", "cut"])
def test_a_seed_that_no_user_has(tmp_path: Path, keys: Path, command: str, kind: str) -> None:
    """The error appears before anything is started, without the content of the file."""
    good = seeds.new_seed(seeds.USER, bytes(range(32)))
    account = seeds.new_seed(seeds.ACCOUNT, bytes(range(32)))
    content = {"account": account, "jwk": keys.read_text(), "cut": good[:-1]}[kind]
    seed = tmp_path / "some.seed"
    seed.touch(0o600)
    seed.write_text(content)
    arguments = (command, "--keys", str(keys), "--nats", UNREACHABLE, "--nats-seed", str(seed))
    words = refused(lorogo(*arguments, cwd=tmp_path, env=CLOSED))
    assert "--nats-seed" in words
    assert "not an nkey seed of a user" in words
    assert content[:20] not in words


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("name", [accounts.GATEWAY, accounts.OPERATOR])
async def test_a_seed_that_is_not_a_servers(closed: Closed, tmp_path: Path, name: str, workers: str) -> None:
    """The server refuses to start: clients would not receive the updates that it accepts."""
    seed = tmp_path / "other.seed"
    seed.touch(0o600)
    seed.write_text(closed.seeds[name])
    arguments = ["serve", "--nats", closed.url, "--keys", str(closed.keys), "--nats-seed", str(seed)]
    result = await asyncio.to_thread(lorogo, *arguments, "--workers", workers, cwd=tmp_path, env=CLOSED)
    assert result.returncode == 2
    words = result.stderr.decode().splitlines()[-1]  # behind the log
    assert words.startswith("lorogo: this seed is not a server's")
    assert "--nats-seed DIR/server.seed" in words
    assert '"serving"' not in result.stderr.decode()


async def test_the_error_of_a_refused_server_names_the_missing_file(closed: Closed, tmp_path: Path) -> None:
    """No seed, a foreign one, no NATS: each names the file of the closed setup that helps."""
    seed = tmp_path / "foreign.seed"
    seed.touch(0o600)
    seed.write_text(seeds.new_seed(seeds.USER, bytes(range(32))))
    keys = ("serve", "--keys", str(closed.keys), "--nats")
    for arguments, problem in (
        ((closed.url,), "NATS requires credentials: use --nats-seed DIR/server.seed"),
        (
            (closed.url, "--nats-seed", str(seed)),
            "NATS does not know this seed: use --nats-seed DIR/server.seed",
        ),
        ((UNREACHABLE,), "start it with `nats-server -c DIR/nats.conf`"),
    ):
        words = refused(await asyncio.to_thread(lorogo, *keys, *arguments, cwd=tmp_path, env=CLOSED))
        assert problem in words


def test_a_key_that_mints_is_more_than_it_takes(tmp_path: Path) -> None:
    """The server warns about a private key: the public set is sufficient for verification."""
    key = new_key(key_id="k7")
    for content, warned in ((key.private(), True), ({"keys": [key.public()]}, False)):
        path = tmp_path / "some.jwk"
        path.touch(0o600)
        path.write_text(json.dumps(content))
        result = lorogo("serve", "--keys", str(path), "--nats", UNREACHABLE, cwd=tmp_path, env=CLOSED)
        assert result.returncode == 2
        assert ("can mint tokens" in result.stderr.decode()) is warned
        assert key.private()["d"] not in result.stderr.decode()


def test_no_secret_is_an_option(tmp_path: Path) -> None:
    """A journal's secret or a password in an address is not taken from the command line."""
    assert "No such option" in refused(lorogo("serve", "--open", "--journal-secret", "s", cwd=tmp_path))
    words = refused(lorogo("serve", "--open", "--nats", "nats://ann:s3cret@127.0.0.1:1", cwd=tmp_path))
    assert "LOROGO_NATS" in words
    assert "s3cret" not in words


def _processes() -> dict[int, str]:
    """The arguments of every process on this machine."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
    return found


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_closed_server_serves_tokens_and_shows_no_secret(
    closed: Closed, tmp_path: Path, workers: int
) -> None:
    """Its seed comes from a file or the environment, and is in no argument and no log line of any process."""
    seed = closed.seeds[accounts.SERVER]
    environment = {**CLOSED, "LOROGO_LOG": "debug", "LOROGO_JOURNAL_SECRET": "the-secret-of-journals"}
    arguments = ["serve", "--nats", closed.url, "--keys", str(closed.keys), "--data", "data"]
    if workers == 1:
        path = tmp_path / "server.seed"
        path.touch(0o600)
        path.write_text(seed)
        arguments += ["--nats-seed", str(path)]
    else:
        environment["LOROGO_NATS_SEED"] = seed
        arguments += ["--workers", str(workers)]
    token, reader = mint({"doc": "write"}), mint({"doc": "read"})
    running = await asyncio.to_thread(Running, arguments, cwd=tmp_path, name="serve", env=environment)
    try:
        async with await connect(closed.url, token=token) as transport:
            caller = Caller(transport.bus, SystemClock(), nanoid.generate)
            await caller.start()

            async def served() -> bool:
                try:
                    await transport.bus.request(subjects.init("doc"), timeout=5)
                    answer = await transport.bus.request(subjects.ping("doc"), timeout=5)
                except NoResponders:
                    return False
                return h.REASON not in answer.headers

            await eventually(served)

            async def patched() -> bool:
                body = {"operations": [{"op": "add", "path": "/title", "value": "x"}]}
                try:
                    return bool(
                        (await caller.call("patch", "doc", body, timeout=10, token=token))["sequence"]
                    )
                except Refused as no:
                    if no.reason is not Reason.BUSY:  # what is revoked is being read
                        raise
                    return False

            await eventually(patched)
            with pytest.raises(Refused) as caught:
                await caller.call("patch", "doc", {"operations": []}, timeout=10, token=reader)
            assert caught.value.reason is Reason.PERMISSION_DENIED
            seen: dict[int, str] = {}

            async def all_run() -> bool:  # one of them was enough so far
                seen.clear()
                seen.update(await asyncio.to_thread(_processes))
                return sum("keepalive" in words for words in seen.values()) >= workers

            await eventually(all_run)
            for words in seen.values():
                assert not [one for one in (seed, token, "the-secret-of-journals") if one in words]
            await caller.close()
    finally:
        code = await asyncio.to_thread(running.stop, signal.SIGTERM)
    logged = running.err.read_text() + running.out.read_text()
    assert code == 0, logged
    assert "serving" in logged
    for secret in (seed, token, token.rpartition(".")[2], reader, "the-secret-of-journals"):
        assert secret not in logged

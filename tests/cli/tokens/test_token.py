"""`lorogo token ...` as people type it: real processes, real files, a closed NATS where it matters."""

import json
import secrets
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from lorogo_cli.errors import CommandError
from lorogo_cli.render.values import parse_duration
from lorogo_client import tokens
from lorogo_protocol.access import revocation
from lorogo_protocol.access.tokens import Keys, keys_of, peek
from lorogo_protocol.messages import subjects
from lorogo_transport.auth import accounts
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores import topology
from tests.cli.support import COMMAND, environment, lorogo, refused, said, said_json

MINT = (
    "token",
    "mint",
    "--key",
    "p.jwk",
    "--subject",
    "ana",
    "--grant",
    "minutes-*=write",
    "--expires",
    "8h",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a key that mints, and the set that verifies."""
    key = tokens.new_key(key_id="now")
    (tmp_path / "p.jwk").write_text(json.dumps(key.private()))
    (tmp_path / "p.jwk").chmod(0o600)
    (tmp_path / "keys.jwks").write_text(json.dumps({"keys": [key.public()], "of": "us"}))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def keys(path: Path) -> Keys:
    return keys_of(path.read_text())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("8h", 28_800),
        ("1h30m", 5400),
        ("30d", 2_592_000),
        ("2w", 1_209_600),
        (" 1H ", 3600),
    ],
)
def test_how_long_something_lasts(text: str, seconds: int) -> None:
    """In units that people use, one or several."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "-8h", "8 h", "8h ago", "1.5h", "10y", "8ms", "9999999999s"])
def test_what_does_not_say_how_long(text: str) -> None:
    """With examples of what does."""
    with pytest.raises(CommandError, match="write 90s, 30m, 8h"):
        parse_duration(text)


def test_mint_prints_the_token_and_nothing_else(folder: Path) -> None:
    """The output on stdout can be piped to another program."""
    result = lorogo(*MINT, "--grant", "a=b=read", "--id", "t-5", cwd=folder)
    assert result.stderr == b""
    (line,) = said(result).splitlines()
    token = keys(folder / "keys.jwks").verify(line, now=time.time())
    assert token.grants.words() == {"minutes-*": "write", "a=b": "read"}
    assert (token.subject, token.token_id) == ("ana", "t-5")
    assert 8 * 3600 - 60 < token.expires - time.time() <= 8 * 3600 + 1


def test_mint_writes_a_file_that_is_private(folder: Path) -> None:
    """Whatever the umask; a token that is there already is replaced."""
    (folder / "t").touch(0o644)
    result = lorogo(*MINT, "--out", "t", cwd=folder)
    assert said(result) == "" and mode(folder / "t") == 0o600
    assert peek((folder / "t").read_text().strip()).subject == "ana"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"--expires": "8"}, "is not a duration"),
        ({"--expires": "0s"}, "in the future"),
        ({"--expires": "10000d"}, "--expires '10000d' is more than ten years"),
        ({"--grant": "minutes"}, "is not a grant"),
        ({"--grant": "=read"}, "is not a grant"),
        ({"--grant": "minutes-*=own"}, "read, write or admin"),
        ({"--grant": "a.b=read"}, "neither a document id nor a pattern"),
        ({"--subject": ""}, "`sub` must be"),
        ({"--key": "missing"}, "there is no 'missing'"),
        ({"--key": "keys.jwks"}, "use the private key, tokens.jwk"),
        ({"--id": "a b"}, "`jti` must be"),
        ({"--out": "p.jwk"}, "--out and --key are the same file"),
        ({"--out": "no/such"}, "there is no 'no/such'"),
    ],
)
def test_what_cannot_be_minted(change: dict[str, str], problem: str, folder: Path) -> None:
    """One sentence, no token, and the key is as it was."""
    before = (folder / "p.jwk").read_bytes()
    options = dict(zip(MINT[2::2], MINT[3::2], strict=True)) | change
    arguments = [word for pair in options.items() for word in pair]
    words = refused(lorogo("token", "mint", *arguments, cwd=folder))
    assert problem in words
    assert (folder / "p.jwk").read_bytes() == before
    assert json.loads(before)["d"] not in words


def test_contradicting_grants_are_refused(folder: Path) -> None:
    """The same twice is not."""
    assert "is granted both write and 'read'" in refused(
        lorogo(*MINT, "--grant", "minutes-*=read", cwd=folder)
    )
    said(lorogo(*MINT, "--grant", "minutes-*=write", cwd=folder))


def minted(folder: Path, **more: Any) -> str:
    text = tokens.mint(
        folder / "p.jwk", **{"subject": "ana", "documents": {"minutes-*": "write"}, "expires": 3600, **more}
    )
    (folder / "t").write_text(text + "\r\n")
    (folder / "t").chmod(0o600)
    return text


def test_a_token_is_shown(folder: Path) -> None:
    """The token comes from a file, the environment or stdin; the output marks it as not verified."""
    text = minted(folder, token_id="t-5")
    ways: list[tuple[list[str], bytes, dict[str, str], str]] = [
        (["--token-file", "t"], b"", {}, "of t\n"),
        (["--token-file", "-"], text.encode(), {"LOROGO_TOKEN": "other"}, "of stdin"),
        ([], text.encode() + b"\n", {}, "of stdin"),
        ([], b"", {"LOROGO_TOKEN": text}, "of LOROGO_TOKEN\n"),
        ([], b"", {"LOROGO_TOKEN_FILE": "t"}, "of LOROGO_TOKEN_FILE"),
    ]
    for arguments, stdin, env, where in ways:
        shown = said(lorogo("token", "show", *arguments, cwd=folder, stdin=stdin, env=env))
        for words in (where, "ana", "t-5", "now", "not verified", "minutes-*  write", "(in "):
            assert words in shown, (words, shown)
        assert text not in shown


def test_a_token_is_verified(folder: Path) -> None:
    """With keys, the output and the exit code show whether the token is good."""
    minted(folder)
    for env, arguments in (({}, ["--keys", "keys.jwks"]), ({"LOROGO_KEYS_FILE": "keys.jwks"}, []),
                           ({"LOROGO_KEYS": (folder / "keys.jwks").read_text()}, [])):  # fmt: skip
        result = lorogo("token", "show", "--token-file", "t", *arguments, cwd=folder, env=env)
        assert "yes, by key now" in said(result)
    facts = said_json(
        lorogo("token", "show", "--token-file", "t", "--keys", "keys.jwks", "--json", cwd=folder)
    )
    assert facts["verified"] is True and facts["documents"] == {"minutes-*": "write"}
    other = tokens.new_key(key_id="now")
    (folder / "keys.jwks").write_text(json.dumps(other.public()))
    result = lorogo("token", "show", "--token-file", "t", "--keys", "keys.jwks", cwd=folder)
    assert (
        result.returncode == 1 and b"NO: the token cannot be used: key 'now' did not sign it" in result.stdout
    )
    result = lorogo("token", "show", "--token-file", "t", "--keys", "keys.jwks", "--json", cwd=folder)
    assert result.returncode == 1 and json.loads(result.stdout)["verified"] is False
    assert said_json(lorogo("token", "show", "--token-file", "t", "--json", cwd=folder))["verified"] is None


@pytest.mark.parametrize(
    ("stdin", "problem"),
    [
        (b"", "not a JWT"),
        (b"hello", "not a JWT"),
        (b"\xff\xfe", "not a JWT"),
        (b"a" * 100_000, "at most 2560"),
    ],
)
def test_what_is_no_token_to_show(stdin: bytes, problem: str, folder: Path) -> None:
    """One sentence, whatever is piped in."""
    assert problem in refused(lorogo("token", "show", cwd=folder, stdin=stdin))


def test_a_token_is_never_an_argument(folder: Path) -> None:
    """The error for a token as an argument does not repeat it; its file may not be readable by others."""
    text = minted(folder)
    for command in (("show", "--token-file", text), ("revoke", text)):
        words = refused(lorogo("token", *command, cwd=folder))
        assert "list" in words and text not in words
    (folder / "t").chmod(0o644)
    assert "chmod 600 t" in refused(lorogo("token", "show", "--token-file", "t", cwd=folder))


def test_a_new_key_joins_the_set(folder: Path) -> None:
    """It is a file of its own, private; the set has its public part, and all that it had before."""
    shown = said(
        lorogo(
            "token", "keys", "new", "--out", "next.jwk", "--public", "keys.jwks", "--id", "next", cwd=folder
        )
    )
    assert "next.jwk" in shown and mode(folder / "next.jwk") == 0o600 and mode(folder / "keys.jwks") == 0o644
    private = json.loads((folder / "next.jwk").read_text())
    jwks = json.loads((folder / "keys.jwks").read_text())
    assert [one["kid"] for one in jwks["keys"]] == ["now", "next"] and jwks["of"] == "us"
    assert private["d"] not in shown + (folder / "keys.jwks").read_text()
    text = tokens.mint(folder / "next.jwk", subject="ana", documents={}, expires=60)
    assert keys(folder / "keys.jwks").verify(text, now=time.time()).key_id == "next"


def test_a_set_is_made_where_there_is_none(folder: Path) -> None:
    """A public set is world-readable; a set with a shared secret is private."""
    said(lorogo("token", "keys", "new", "--out", "a.jwk", "--public", "a.jwks", cwd=folder))
    assert mode(folder / "a.jwks") == 0o644
    shown = said(
        lorogo("token", "keys", "new", "--kind", "HS256", "--out", "b.jwk", "--public", "a.jwks", cwd=folder)
    )
    assert mode(folder / "a.jwks") == 0o600 and "keep it secret, too" in shown
    facts = said_json(lorogo("token", "keys", "new", "--out", "c.jwk", "--json", cwd=folder))
    assert facts["public"] is None and facts["algorithm"] == "EdDSA"
    assert len(keys(folder / "a.jwks").all) == 2


def test_nothing_is_ever_written_over(folder: Path) -> None:
    """A key that is there stays; a name that is taken is refused; then neither file is changed."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    new = ("token", "keys", "new", "--public", "keys.jwks")
    assert "exists already" in refused(lorogo(*new, "--out", "p.jwk", cwd=folder))
    assert "choose another --id" in refused(lorogo(*new, "--out", "q.jwk", "--id", "now", cwd=folder))
    assert "its folder does not exist" in refused(
        lorogo("token", "keys", "new", "--out", "q", "--public", "no/k", cwd=folder)
    )
    (folder / "keys.jwks").write_text("{")
    assert "not JSON" in refused(lorogo(*new, "--out", "q.jwk", cwd=folder))
    (folder / "keys.jwks").write_bytes(before["keys.jwks"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_two_who_add_a_key_at_once(folder: Path) -> None:
    """Neither key is lost."""
    started = [
        subprocess.Popen(
            [*COMMAND, "token", "keys", "new", "--out", f"{n}.jwk", "--public", "keys.jwks", "--id", f"k{n}"],
            cwd=folder, env=environment(), stdout=subprocess.DEVNULL,
        )
        for n in range(4)
    ]  # fmt: skip
    assert [one.wait(60) for one in started] == [0] * 4
    assert {key.key_id for key in keys(folder / "keys.jwks").all} == {"now", "k0", "k1", "k2", "k3"}


def test_keys_are_shown_without_themselves(folder: Path) -> None:
    """Their names and what they can do."""
    shown = said(lorogo("token", "keys", "show", "p.jwk", cwd=folder))
    assert "now  EdDSA      mint and verify" in shown
    assert json.loads((folder / "p.jwk").read_text())["d"] not in shown
    facts = said_json(lorogo("token", "keys", "show", "keys.jwks", "--json", cwd=folder))
    assert facts == {"keys": [{"kid": "now", "algorithm": "EdDSA", "mints": False}]}


def test_a_key_is_removed(folder: Path) -> None:
    """But never the last one, and never one that is not there."""
    remove = ("token", "keys", "remove", "--public", "keys.jwks")
    assert "is the last key" in refused(lorogo(*remove, "now", cwd=folder))
    said(
        lorogo("token", "keys", "new", "--out", "q.jwk", "--public", "keys.jwks", "--id", "next", cwd=folder)
    )
    assert "it has now, next" in refused(lorogo(*remove, "other", cwd=folder))
    assert "key now is removed" in said(lorogo(*remove, "now", cwd=folder))
    assert [key.key_id for key in keys(folder / "keys.jwks").all] == ["next"]
    assert json.loads((folder / "keys.jwks").read_text())["of"] == "us"


def test_private_keys_in_a_set_stay_private_and_whole(folder: Path) -> None:
    """A set that has private keys in it loses none of them, and stays closed to others."""
    (folder / "p.jwk").replace(folder / "all.jwks")
    before = json.loads((folder / "all.jwks").read_text())
    said(lorogo("token", "keys", "new", "--out", "q.jwk", "--public", "all.jwks", cwd=folder))
    assert json.loads((folder / "all.jwks").read_text())["keys"][0] == before
    assert mode(folder / "all.jwks") == 0o600


def test_the_help_explains_rotation(folder: Path) -> None:
    """In the order in which it is done."""
    shown = " ".join(said(lorogo("token", "keys", "--help", cwd=folder)).split())
    assert shown.index("keys new") < shown.index("mint with") < shown.index("keys remove")


async def entries(nats: EmbeddedNats, seed: str | None) -> dict[str, revocation.Revocation]:
    async with await connect(nats.url, seed=seed) as transport:
        stream = transport.stream(subjects.REVOKED_STREAM)
        return {
            subjects.document_of(stored.subject): revocation.decode(
                subjects.document_of(stored.subject), stored.data
            )
            async for stored in stream.read(subjects.revoked_key(">"))
        }


@pytest.mark.nats
async def test_revoking_on_a_closed_nats(folder: Path) -> None:
    """An operator may revoke; a client without credentials and a service with read rights may not."""
    seeds = accounts.new_seeds(secrets.token_bytes)
    for name, seed in seeds.items():
        (folder / f"{name}.seed").write_text(seed)
        (folder / f"{name}.seed").chmod(0o600)
    conf = accounts.accounts(accounts.public_keys(seeds))
    async with EmbeddedNats(folder / "nats", configuration=conf) as nats:
        env = {"LOROGO_NATS": nats.url}
        revoke = ("token", "revoke", "--nats-seed", "operator.seed")
        assert "no lorogo server has ever run" in refused(lorogo(*revoke, "t-5", cwd=folder, env=env))
        async with await connect(nats.url, seed=seeds[accounts.SERVER]) as server:
            for spec in topology.specs():
                await server.ensure(spec)
        now = time.time()
        result = lorogo(*revoke, "t-5", "--for", "30d", cwd=folder, env=env)
        assert "the token t-5 is refused from now on" in said(result)
        (line,) = result.stderr.splitlines()
        assert json.loads(line) | {"revoked_token_id": "t-5", "outcome": "done"} == json.loads(line)
        assert "revoke again" in said(result)  # no server runs that could keep it
        assert "without a token" not in said(result)
        facts = said_json(lorogo(*revoke, "--subject", "ana", "--json", cwd=folder, env=env))
        assert facts == {"subject": "ana", "until": None, "kept_by": []}
        token = peek(minted(folder, token_id="leaked"))
        said(lorogo(*revoke, "--token-file", "t", cwd=folder, env={**env, "LOROGO_TOKEN": "not this one"}))
        found = await entries(nats, seeds[accounts.OPERATOR])
        assert set(found) == {"tok_t-5", "tok_leaked", revocation.subject_key("ana")}
        assert now + 30 * 86_400 <= (found["tok_t-5"].until or 0) <= time.time() + 30 * 86_400 + 10
        assert (found["tok_leaked"].until or 0) >= token.expires
        stranger = lorogo("token", "revoke", "t-6", cwd=folder, env=env)
        assert "requires credentials: use --nats-seed" in refused(stranger)
        reader = lorogo("token", "revoke", "t-6", "--nats-seed", "auth-list.seed", cwd=folder, env=env)
        assert reader.returncode == 2 and reader.stdout == b""
        assert set(await entries(nats, seeds[accounts.OPERATOR])) == set(found)
        complete = ("token", "complete", "--nats-seed", "operator.seed", "--json")
        assert said_json(lorogo(*complete, cwd=folder, env=env)) == {"entries": 3}
        for seed in seeds.values():
            assert seed.encode() not in result.stderr + stranger.stderr + reader.stderr


@pytest.mark.nats
async def test_a_user_without_the_right_to_revoke_is_refused(folder: Path) -> None:
    """NATS forbids the write: the error is one sentence about this user."""
    conf = """authorization { users: [
        { user: all, password: p }, { user: reader, password: p, permissions: { publish: { deny: "$KV.>" } } }
    ] }"""
    async with EmbeddedNats(folder / "nats", configuration=conf) as nats:
        address = nats.url.removeprefix("nats://")
        async with await connect(f"nats://all:p@{address}") as server:
            for spec in topology.specs():
                await server.ensure(spec)
        for user, problem in (
            ("reader:p", "this NATS user may not revoke"),
            ("all:q", "refuses these credentials"),
        ):
            result = lorogo(
                "token", "revoke", "a", cwd=folder, env={"LOROGO_NATS": f"nats://{user}@{address}"}
            )
            *_, last = result.stderr.decode().splitlines()
            assert (result.returncode, result.stdout) == (2, b"") and problem in last


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "choose one token to revoke"),
        (("a", "--subject", "ana"), "choose one token to revoke"),
        (("a.b",), "1 to 64 characters"),
        (("a" * 65,), "1 to 64 characters"),
        (("--subject", ""), "1 to 128 printable"),
        (("--subject", "a\x1b[31m"), "1 to 128 printable"),
        (("--token-file", "missing"), "there is no 'missing'"),
        (("a", "--for", "soon"), "is not a duration"),
        (("a", "--nats-seed", "missing"), "there is no 'missing'"),
        (("a", "--nats", "nats://127.0.0.1:1"), "nothing answers"),
    ],
)
def test_what_cannot_be_revoked(arguments: tuple[str, ...], problem: str, folder: Path) -> None:
    """One sentence, before anything is written."""
    assert problem in refused(lorogo("token", "revoke", *arguments, cwd=folder))


def test_a_token_is_written_over_nothing_but_a_token(folder: Path) -> None:
    """A seed, a key, anything else stays as it is; a missing file, an empty one and an old token do not."""
    for name, content in (("s.seed", "SUA"), ("k.jwks", "{}"), ("big", "x" * 100_000), ("bytes", "\x80")):
        (folder / name).write_text(content, encoding="latin-1")
        refused(lorogo(*MINT, "--out", name, cwd=folder))
        assert (folder / name).read_text(encoding="latin-1") == content
    (folder / "folder").mkdir()
    refused(lorogo(*MINT, "--out", "folder", cwd=folder))
    (folder / "empty").touch()
    before = ""
    for name in ("empty", "empty", "new", "new"):
        said(lorogo(*MINT, "--out", name, cwd=folder))
        text = (folder / name).read_text().strip()
        assert peek(text).subject == "ana"
        assert text != before
        before = text


def test_a_new_key_is_not_used_at_once(folder: Path) -> None:
    """`keys new` prints the time to wait; without a published set there is no reader to wait for."""
    words = said(lorogo("token", "keys", "new", "--out", "n.jwk", "--public", "keys.jwks", cwd=folder))
    assert "wait 10 s before you mint with it" in words
    assert "wait" not in said(lorogo("token", "keys", "new", "--out", "m.jwk", cwd=folder))


@pytest.mark.nats
async def test_revoking_on_an_open_nats(folder: Path) -> None:
    """On a NATS that accepts anonymous clients, the command warns that no token is checked."""
    async with EmbeddedNats(folder / "nats") as nats:
        async with await connect(nats.url) as server:
            for spec in topology.specs():
                await server.ensure(spec)
        result = lorogo("token", "revoke", "t-5", cwd=folder, env={"LOROGO_NATS": nats.url})
        assert "this NATS accepts anonymous clients, so tokens are not checked" in said(result)

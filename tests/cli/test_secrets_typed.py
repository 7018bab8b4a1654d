"""A secret that was typed in place of a file name is never printed."""

import json
import re
from pathlib import Path

import pytest

from lorogo_client import tokens
from lorogo_transport.auth import seeds
from lorogo_transport.secret_files import (
    SecretUnusable,
    misplaced_secret,
    read_secret_file,
    redacted,
    write_secret,
)
from tests.cli.support import lorogo, refused

KEY = tokens.new_key(key_id="k1")
TOKEN = tokens.mint(KEY, subject="ana", documents={"minutes-*": "write"}, expires=7200)
SEED = seeds.new_seed(seeds.USER, bytes(range(32)))
JWK = json.dumps(KEY.private(), indent=2)
SECRETS = (TOKEN.split(".")[1], TOKEN.split(".")[2], SEED[2:], KEY.private()["d"])
NOWHERE = {"LOROGO_NATS": "nats://127.0.0.1:1"}
MINT = ("token", "mint", "--subject", "ana", "--grant", "a=read", "--expires", "1h")


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["doc", "get", "x", "--token-file", TOKEN], {}, "that is the token itself.*LOROGO_TOKEN"),
        (["doc", "get", "x", f"--token-file={TOKEN}"], {}, "that is the token itself"),
        (["doc", "get", "x", "--nats-seed", SEED], {}, "that is the seed itself.*LOROGO_NATS_SEED"),
        (["serve", "--nats-seed", SEED], {}, "that is the seed itself"),
        (["status"], {"LOROGO_NATS_SEED_FILE": SEED}, "that is the seed itself"),
        (["status"], {"LOROGO_TOKEN_FILE": TOKEN}, "that is the token itself"),
        ([*MINT, "--key", JWK], {}, "that is the key itself, not a file"),
        ([*MINT, "--key", "k", "--id", TOKEN], {}, "there is no"),
        (["serve", "--keys", JWK], {"LOROGO_OPEN": ""}, "that is the key itself"),
        (["token", "show", TOKEN], {}, "that is the token itself.*see `lorogo token show --help`"),
        (["token", "show", JWK], {}, "that is the key itself"),
        (["token", "show", "--token-file", TOKEN], {}, "a token must not be an argument"),
        (["token", "keys", "show", JWK], {}, "that is the key itself"),
        (["status", "--workers", SEED], {}, "No such option"),
        ([SEED], {}, "that is the seed itself"),
        (["doc", "get", TOKEN], {}, "is not a document id"),
        (["doc", "get", "x", "--at", SEED], {}, "neither a time"),
    ],
)
def test_no_error_contains_a_secret(
    tmp_path: Path, arguments: list[str], env: dict[str, str], words: str
) -> None:
    """Neither the error of a file read nor that of the argument parser has the secret; it names the right
    option.
    """
    sentence = refused(lorogo(*arguments, cwd=tmp_path, env=NOWHERE | env))
    assert not [secret for secret in SECRETS if secret[:30] in sentence]
    assert re.search(words, sentence), sentence


@pytest.mark.parametrize("text", [TOKEN, SEED, JWK, f"Bearer {TOKEN}", json.dumps({"keys": [KEY.private()]})])
def test_what_looks_like_a_secret(tmp_path: Path, text: str) -> None:
    """A secret is recognised anywhere in a text, hidden in errors, and never used as a file name."""
    assert misplaced_secret(text)
    assert not [secret for secret in SECRETS if secret in redacted(f"there is no {text!r} here")]
    for act in (lambda: read_secret_file(text, "it"), lambda: write_secret(text, "s", "it")):
        with pytest.raises(SecretUnusable, match="itself, not a file"):
            act()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["ana.token", "closed/server.seed", "/run/secrets/keys.jwks", "SUMMARY", "eyJ", "{}"]
)
def test_names_of_files_are_no_secrets(text: str) -> None:
    """The text of such a name stays unchanged in errors."""
    assert misplaced_secret(text) == ""
    assert redacted(text) == text

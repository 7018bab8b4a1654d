"""docs/SECURITY.md keeps its promises: its examples mint tokens that verify, its numbers are ours."""

import json
import re
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from lorogo_client import tokens
from lorogo_protocol import limits
from lorogo_protocol.access import tokens as protocol
from lorogo_protocol.access.grants import Access
from lorogo_transport import secret_files
from lorogo_transport.auth import authority, revocations
from tests.handbook.markdown import blocks
from tests.pages import commands, unknown_options

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES, ids=["PyJWT"])
def test_the_examples_mint(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as they stand, beside a key file, they make a token that a closed server takes."""
    key = tokens.new_key()
    (tmp_path / "tokens.jwk").write_text(json.dumps(key.private()))
    (tmp_path / "tokens.jwk").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    token = protocol.keys_of({"keys": [key.public()]}).verify(names["token"], now=time.time())
    assert token.subject == "ana" and token.issued is not None
    assert token.grants.access("minutes-1") is Access.WRITE and token.grants.access("plans-7") is Access.READ
    assert 7.9 * 3600 < token.expires - time.time() < 8.1 * 3600


def test_the_numbers_are_ours() -> None:
    """The figures of the page are those of the code."""
    for words, number in {
        "at most 2,560 bytes": limits.TOKEN_BYTES_MAX == 2560,
        "1 to 128 printable characters": limits.TOKEN_SUBJECT_CHARS_MAX == 128,
        "at most 256.": limits.GRANTS_MAX == 256,
        "differ by 5 seconds": protocol.CLOCK_SECONDS == 5,
        "at least 32 random bytes": protocol.SECRET_BYTES_MIN == 32,
        "the last 10,000 of them": authority.REMEMBERED_MAX == 10_000,
        "every 5 seconds": authority.REFRESH_SECONDS == 5,
        "every 30 seconds": revocations.POLL_SECONDS == 30,
        "1,000,000 entries": revocations.ENTRIES_MAX == 1_000_000,
        "at most 64 KiB": secret_files.SECRET_BYTES_MAX == 64 * 1024,
        "64 MiB": limits.REVOKED_BYTES_MAX == 64 * limits.MIB,
    }.items():
        assert words in PAGE and number, words


def both_pages() -> str:
    guide = "".join(block.text for block in blocks(ROOT / "docs" / "handbook" / "closed.md"))
    return PAGE + textwrap.indent(guide, "    ")


@pytest.mark.parametrize("words", commands(both_pages()), ids=" ".join)
def test_every_command_can_be_typed(words: list[str]) -> None:
    """Commands and options of the page exist."""
    assert not unknown_options(words)

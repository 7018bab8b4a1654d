"""A file of settings: each mistake has its line, its key, the found value and the allowed ones."""

import os
from pathlib import Path
from typing import Any

import pytest

from lorogo_cli.config.files import ConfigFile, parse, read
from lorogo_cli.errors import CommandError

PASSWORD = "hunter2"
SEED = "SU" + "A" * 56


def written(tmp_path: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path = tmp_path / "lorogo.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


def said(text: str) -> list[str]:
    """The mistakes in a file of this text."""
    return [str(one).removeprefix("lorogo.toml:") for one in parse(text, Path("lorogo.toml")).mistakes]


def values(file: ConfigFile) -> dict[tuple[str, str], Any]:
    return {place: found.value for place, found in file.values.items()}


@pytest.mark.parametrize(
    ("section", "text", "words"),
    [
        # names
        ("", "opne = true", "is not a setting; did you mean open?"),
        ("serve", "idle_secnds = 5", "is not a setting; did you mean idle_seconds?"),
        ("serve", "idle-seconds = 5", "is not a setting; did you mean idle_seconds?"),
        ("serve", "xyzzy = 5", "is not a setting"),
        ("", "port = 5", "belongs into [gateway]"),
        ("", "idle_seconds = 5", "belongs into [serve] or [gateway]"),
        ("serve", "port = 5", "belongs into [gateway]"),
        ("auth", "open = true", "belongs into [serve] or [gateway]"),
        ("gateway", "origin = []", "is not a setting; did you mean origins?"),
        ("serve", "history_seconds = 5", "is not a setting; did you mean history_days?"),
        ("serve", "journal = {keep = 1}", "is not a setting; did you mean journal_partitions?"),
        ("", "keys = 'x'", "is a secret: write it into a file of its own; did you mean keys_file?"),
        ("", "serve = 5", "is a section: write [serve] once, with its settings below"),
        # kinds
        ("serve", "workers = '2'", "must be a whole number from 1 to 256, without quotes, not '2'"),
        ("serve", "workers = true", "must be a whole number from 1 to 256, not true"),
        ("serve", "workers = 2.0", "must be a whole number from 1 to 256, not 2.0"),
        ("serve", "idle_seconds = true", "must be a number above 0, not true"),
        ("serve", "idle_seconds = '5m'", "must be a number above 0, without quotes, not '5m'"),
        ("", "open = 1", "must be true or false, not 1"),
        ("", "open = 'yes'", "must be true or false, without quotes, not 'yes'"),
        ("", "log = 3", "must be debug, info, warning or error, not 3"),
        ("", "log = 'loud'", "must be debug, info, warning or error, not 'loud'"),
        ("gateway", "origins = 'x'", 'must be a list, as in ["a", "b"], not \'x\''),
        ("gateway", "origins = [1]", "must be a list of texts, not a list"),
        ("gateway", "host = ['x']", "must be a text, not a list"),
        ("gateway", "port = 1979-05-27", "must be a whole number from 0 to 65535, not 1979-05-27"),
        ("gateway", "port = {a = 1}", "must be a whole number from 0 to 65535, not a section"),
        ("gateway", "tls_cert = 3", "must be the name of a file, not 3"),
        ("gateway", "tls_cert = ''", "must be the name of a file, not ''"),
        # numbers
        ("serve", "documents_max = -3", "must be a whole number above 0, not -3"),
        ("gateway", "port = 65536", "must be a whole number from 0 to 65535, not 65536"),
        ("serve", "idle_seconds = nan", "must be a number above 0, not nan"),
        ("serve", "idle_seconds = inf", "must be a number above 0, and at most 3153600000, not inf"),
        ("serve", "idle_seconds = -inf", "must be a number above 0, not -inf"),
        ("serve", "idle_seconds = 1e400", "must be a number above 0, and at most 3153600000, not inf"),
        ("serve", f"idle_seconds = {10**400}",
         f"must be a number above 0; the given number is far too large, not {10**59}..."),
        ("serve", f"documents_max = {10**30}",
         f"must be a whole number above 0, and at most 1000000000, not {10**30}"),
        ("serve", f"documents_max = 0x{'f' * 5000}",
         "must be a whole number above 0, and at most 1000000000, not a number of thousands of digits"),
        ("serve", f"idle_seconds = 0x{'f' * 5000}",
         "must be a number above 0; the given number is far too large, not a number of thousands of digits"),
        # sizes
        ("serve", "update_bytes_max = '65MiB'", "must be a size from 1 to 64MiB, not '65MiB'"),
        ("serve", "update_bytes_max = 'much'",
         "must be a size from 1 to 64MiB, in bytes or as 512KiB, 64MiB, 10GiB, not 'much'"),
        (
            "serve",
            "wal_bytes_max = 1.5",
            'must be a whole number of bytes, or a string like "64MiB", not 1.5',
        ),
        ("serve", "wal_bytes_max = -2",
         "must be a size above 0 (0: fits JetStream's storage, -1: no limit), not -2"),
        # texts with a form
        ("", "nats = 'http://x'",
         "must be an address of NATS, as nats://host:4222, or several with commas, not 'http://x'"),
        ("serve", "archive = '/x'", "must be a URL, as in file:///backup/lorogo, not '/x'"),
        ("serve", "journal_listen = 'x:y'", "must be HOST or HOST:PORT, not 'x:y'"),
        ("serve", "journal_listen = ':7400'", "must be HOST or HOST:PORT, not ':7400'"),
        ("serve", "journal_listen = 'x:99999'", "must be HOST or HOST:PORT, not 'x:99999'"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_key(section: str, text: str, words: str) -> None:
    """The line, the key, what is there, what may be, and the nearest key for one that is not."""
    name = text.partition(" ")[0]
    before, called = (f"\n[{section}]\n", f"3: [{section}] {name}") if section else ("\n\n", f"3: {name}")
    assert said(before + text) == [f"{called} {words}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gateway]\norigins = ['x']", "2: [gateway] origins: 'x' is not an origin"),
        (
            "\n[server]\na = 1",
            "2: [server] is not a section; sections are [serve], [gateway], [auth]; did you mean [se",
        ),
        ("[dev]\nport = 1", "1: [dev] is not a section: `lorogo dev` takes no settings from a file"),
        ("[[serve]]\nworkers = 2", "1: serve is a section: write [serve] once, with its settings below"),
        ("[serve.data]\nkeep = 1", "1: [serve] data must be the name of a folder, not a section"),
        ("\nopen = \n", "2: this is not TOML: Invalid value"),
        ("open = yes", "1: this is not TOML: Invalid value"),
        ("open true", "1: this is not TOML: Expected '=' after a key in a key/value pair"),
        ("[serve", "this is not TOML at its end: Expected ']' at the end of a table declaration"),
        ("[serve]\nworkers = 1\n\nworkers = 2", "4: [serve] workers is set more than once: lines 2 and 4"),
        ("open = true\nopen = true", "2: open is set more than once: lines 1 and 2"),
        ("[serve]\n[auth]\n[serve]", "3: [serve] is set more than once: lines 1 and 3"),
        (f"[serve]\nworkers = {'1' * 5000}", "this is not TOML: Exceeds the limit"),
        (f"x = {'[' * 30_000}", "this TOML is nested too deep"),
    ],
)
def test_mistakes_of_a_whole_file_are_reported(text: str, words: str) -> None:
    """Sections that there are not, what is there twice, and what is no TOML."""
    (found,) = said(text)
    assert found.lstrip(" ").startswith(words), found


def test_mistakes_are_reported_in_order() -> None:
    found = said("opne = true\n[serve]\nworkers = 0\n[gateway]\nprot = 1\nport = -1\n")
    assert [one.partition(":")[0] for one in found] == ["1", "3", "5", "6"]


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing\n", "\ufeff", "[serve]\n[gateway]\n[auth]\n"])
def test_a_file_that_says_nothing_sets_nothing(tmp_path: Path, content: str) -> None:
    found = read(written(tmp_path, content))
    assert (found.values, found.mistakes) == ({}, ())


@pytest.mark.parametrize(
    "content", ["\ufeffopen = true\n", "open = true\r\n[serve]\r\n", "  open   =  true # ok"]
)
def test_how_editors_write_files(tmp_path: Path, content: str) -> None:
    """A byte order mark, line ends of Windows, spaces and comments change nothing."""
    assert values(read(written(tmp_path, content))) == {("", "open"): True}


def test_values_are_taken_with_their_lines(tmp_path: Path) -> None:
    """Sizes with and without quotes, lists over several lines, names of files from the file's folder."""
    text = """
nats = "nats://one:4222,nats://two"

[serve]
idle_seconds = 5
wal_bytes_max = -1
document_bytes_max = "1GiB"
data = "data"
[gateway]
origins = [  # whose pages
  "http://a.example",
  'https://b.example:444',
]
tls_cert = "/etc/cert.pem"
"port" = 0
"""
    file = parse(text, tmp_path / "lorogo.toml")
    assert file.mistakes == ()
    assert values(file) == {
        ("", "nats"): "nats://one:4222,nats://two",
        ("serve", "idle_seconds"): 5.0,
        ("serve", "wal_bytes_max"): -1,
        ("serve", "document_bytes_max"): 1 << 30,
        ("serve", "data"): tmp_path / "data",
        ("gateway", "origins"): ("http://a.example", "https://b.example:444"),
        ("gateway", "tls_cert"): Path("/etc/cert.pem"),
        ("gateway", "port"): 0,
    }
    assert [found.line for found in file.values.values()] == [2, 5, 6, 7, 8, 10, 14, 15]


# --- files that cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"open = true # \xff", "is not text"),
        ("open = true".encode("utf-16"), "is not text"),
        (b"# " + b"x" * 65_535, "has more than 65536 bytes"),
    ],
)
def test_what_is_no_small_text_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(CommandError, match=words) as refused:
        read(written(tmp_path, content))
    assert "the settings file cannot be read" in str(refused.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A directory, a pipe without a writer and a missing file are refused; none of them blocks."""
    os.mkfifo(tmp_path / "pipe")
    for path, words in ((tmp_path, "is not a plain file"), (tmp_path / "pipe", "is not a plain file"),
                        (tmp_path / "absent", "there is no"), (Path(SEED), "the seed itself")):  # fmt: skip
        with pytest.raises(CommandError, match=words) as refused:
            read(path)
        assert SEED not in str(refused.value)


# --- secrets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "wrong"),
    [
        ("open = true", 0o644, ""),
        ("open = true", 0o664, ""),
        ("open = true", 0o666, "all users may change this file: run chmod o-w"),
        (f"nats = 'nats://ann:{PASSWORD}@host'", 0o600, ""),
        (f"nats = 'nats://ann:{PASSWORD}@host'", 0o644, "other users may read or change it: chmod 600"),
        (f"nats = 'ann:{PASSWORD}@host'", 0o604, "is not secret"),
        (f"nats = 'ann:{PASSWORD}@host,nats://other'", 0o644, "is not secret"),
        (f"nats = 'nats://ann:{PASSWORD}@host'", 0o640, "is not secret, its group may read it: chmod 600"),
        (f"[serve]\narchive = 'ftp://ann:{PASSWORD}@host/x'", 0o644, "is not secret"),
    ],
)  # fmt: skip
def test_a_file_with_a_password_is_for_its_owner(tmp_path: Path, text: str, mode: int, wrong: str) -> None:
    """A file with a secret is private; a file that every user may change is refused, whatever it contains."""
    found = [str(one) for one in read(written(tmp_path, text, mode)).mistakes]
    assert len(found) == bool(wrong)
    assert all(wrong in one and PASSWORD not in one for one in found)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[serve]\njournal_secret = '{PASSWORD}'", "did you mean journal_secret_file?"),
        (f"[serve]\nnats_seed = '{SEED}'", "did you mean nats_seed_file?"),
        (f"[serve]\nnats_seed_file = '{SEED}'", "that is the seed itself, not a file"),
        (f"[serve]\njournal_secret_file = ['{PASSWORD}']", "must be the name of a file, not a list"),
        (f"nats = 'http://ann:{PASSWORD}@host'", "not the given value"),
        (f"nats = 'nats://ann:{PASSWORD}/x@host'", "not the given value"),
        (f"nats = ['nats://ann:{PASSWORD}@host']", "must be a text, not a list"),
        (f"[serve]\nworkers = 'nats://ann:{PASSWORD}@host'", "not the given value"),
        (f"token = '{PASSWORD}'", "token is not a setting"),
        (f"[serve]\npassword = '{PASSWORD}'", "password is not a setting"),
        (f"[gateway]\nhost = {{password = '{PASSWORD}'}}", "must be a text, not a section"),
        (f"nats = 'nats://ann:{PASSWORD}@host", "this is not TOML"),
    ],
)
def test_no_mistake_says_a_secret(text: str, words: str) -> None:
    (found,) = said(text)
    assert words in found
    assert PASSWORD not in found and SEED not in found

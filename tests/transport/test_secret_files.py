"""Secrets from files and the environment: what is taken, what is refused, and that nothing of them shows."""

import os
import stat
import traceback
from pathlib import Path

import pytest

from lorogo_transport import secret_files
from lorogo_transport.secret_files import (
    SECRET_BYTES_MAX,
    SecretUnusable,
    read_secret,
    without_secrets,
    write_secret,
)

SECRET = "s3cr3t-value"
NAME = "LOROGO_TEST_SECRET"


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.delenv(f"{NAME}_FILE", raising=False)


def read(path: Path | str | None = None) -> str | None:
    return read_secret(path=path, environment=NAME, what="the seed")


def made(path: Path, content: bytes = SECRET.encode(), mode: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def refused(path: Path | str | None = None) -> str:
    with pytest.raises(SecretUnusable) as caught:
        read(path)
    said = str(caught.value)
    assert said.startswith("the seed") and SECRET not in said and "\n" not in said
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    return said


def test_where_a_secret_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is named, else the variable, else the file that the variable names, else nowhere."""
    assert read() is None
    monkeypatch.setenv(f"{NAME}_FILE", str(made(tmp_path / "third", b"third")))
    assert read() == "third"
    monkeypatch.setenv(NAME, " second\n")
    assert read() == "second"
    assert read(made(tmp_path / "first", b"first")) == "first"
    assert read(str(tmp_path / "first")) == "first"


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_an_empty_variable_counts_as_none(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is how one takes a variable back in many a tool."""
    monkeypatch.setenv(NAME, blank)
    assert read() is None
    monkeypatch.setenv(f"{NAME}_FILE", "")
    assert read() is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\r\n", "abc"),
        (b"\n \tabc \r\n\r\n", "abc"),
        (b"\xef\xbb\xbfabc\r\n", "abc"),  # as some editors begin a file
        (b"a\r\nb\r\n", "a\r\nb"),
        ("gr\u00fc\u00df".encode(), "gr\u00fc\u00df"),
        (b"x" * SECRET_BYTES_MAX, "x" * SECRET_BYTES_MAX),
    ],
)
def test_what_a_file_says(content: bytes, expected: str, tmp_path: Path) -> None:
    """Line ends and spaces around a secret are not of it."""
    assert read(made(tmp_path / "f", content)) == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \r\n", "is empty"),
        (b"x" * (SECRET_BYTES_MAX + 1), "more than 65536 bytes"),
        (SECRET.encode() + b"\xff\xfe", "is not text"),
    ],
)
def test_files_that_hold_no_secret(content: bytes, problem: str, tmp_path: Path) -> None:
    """The error names the problem of the file."""
    assert problem in refused(made(tmp_path / "f", content))


MODES = [
    (0o600, ""), (0o400, ""), (0o700, ""), (0o711, ""), (0o601, ""),
    (0o640, "its group may read it"), (0o440, "its group may read it"), (0o660, "its group may change it"),
    (0o620, "its group may change it"), (0o644, "other users may read"), (0o604, "other users may read"),
    (0o602, "other users may read or change"), (0o666, "other users may read"),
    (0o777, "other users may read"),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "problem"), MODES, ids=[oct(mode) for mode, _ in MODES])
def test_the_mode_of_our_own_file_is_checked(mode: int, problem: str, tmp_path: Path) -> None:
    """A file of this user that others may read or change is refused, with the chmod command that helps."""
    path = made(tmp_path / "f", mode=mode)
    if not problem:
        if os.access(path, os.R_OK):
            assert read(path) == SECRET
        return
    assert problem in (error := refused(path)) and error.endswith(f"chmod 600 {path}")


@pytest.mark.parametrize(
    ("mode", "taken"), [(0o640, True), (0o440, True), (0o600, True), (0o660, False), (0o644, False)]
)
def test_a_mounted_secret(mode: int, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another user may be readable by its group: how else would we get it."""
    path = made(tmp_path / "f", mode=mode)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    if taken:
        assert read(path) == SECRET
    else:
        refused(path)


def test_what_is_not_a_plain_file(tmp_path: Path) -> None:
    """A missing file, a directory, a pipe without a writer and a device each have a clear error, at once."""
    assert "there is no" in refused(tmp_path / "missing")
    assert "not a plain file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "not a plain file" in refused(tmp_path / "pipe")
    assert "not a plain file" in refused("/dev/null")
    assert "not the name of a file" in refused("a\0b")
    assert "Not a directory" in refused(made(tmp_path / "f") / "below")
    assert "File name too long" in refused("a" * 5000)


def test_links(tmp_path: Path) -> None:
    """A link is followed, and the file behind it is what must be private."""
    link = tmp_path / "link"
    link.symlink_to("target")
    assert "there is no" in refused(link)
    made(tmp_path / "target")
    assert read(link) == SECRET
    (tmp_path / "target").chmod(0o644)
    assert "other users may read" in refused(link)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "symbolic links" in refused(tmp_path / "a")


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission errors are reported as such; root's files do not belong to this user."""

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = made(tmp_path / "f")
    monkeypatch.setattr("os.open", denied)
    assert "permission denied for" in refused(path)


def test_a_file_that_fails_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a failing disk is one sentence, and no file stays open."""
    fstat = os.fstat

    def broken(_: int) -> os.stat_result:
        monkeypatch.setattr("os.fstat", fstat)
        raise OSError(5, "Input/output error")

    path = made(tmp_path / "f")
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir())) if opened.exists() else 0
    monkeypatch.setattr("os.fstat", broken)
    assert "Input/output error" in refused(path)
    if before:
        assert len(list(opened.iterdir())) == before


def test_a_huge_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as a huge file is."""
    monkeypatch.setenv(NAME, SECRET * 10_000)
    assert "more than 65536 bytes" in refused()


def test_the_variable_s_file_is_checked_like_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or open file that a variable names is an error, not "none"."""
    monkeypatch.setenv(f"{NAME}_FILE", str(tmp_path / "missing"))
    assert "there is no" in refused()
    monkeypatch.setenv(f"{NAME}_FILE", str(made(tmp_path / "open", mode=0o644)))
    assert "other users may read" in refused()


def test_a_secret_is_written_for_its_owner_only(tmp_path: Path) -> None:
    """The file has mode 0600 under any umask, is complete, and is the only file in the directory."""
    path = tmp_path / "f"
    before = os.umask(0)
    try:
        write_secret(path, SECRET, "the seed")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == SECRET + "\n" and read(path) == SECRET
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    """Unless it is to be replaced, a file is never overwritten, nor what a link points to."""
    path = made(tmp_path / "f", b"old")
    (tmp_path / "link").symlink_to("elsewhere")
    for there in (path, tmp_path / "link", tmp_path):
        with pytest.raises(SecretUnusable, match="exists already"):
            write_secret(there, SECRET, "the seed")
    assert path.read_text() == "old" and not (tmp_path / "elsewhere").exists()
    write_secret(path, SECRET, "the seed", replace=True)
    assert read(path) == SECRET
    assert sorted(one.name for one in tmp_path.iterdir()) == ["f", "link"]


def test_replacing_keeps_a_link(tmp_path: Path) -> None:
    """The file behind the link is replaced, and the link stays one."""
    made(tmp_path / "target", b"old")
    (tmp_path / "link").symlink_to("target")
    write_secret(tmp_path / "link", SECRET, "the seed", replace=True)
    assert (tmp_path / "link").is_symlink() and read(tmp_path / "target") == SECRET


def test_a_secret_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, the old file as it was, and nothing half beside it."""
    path = made(tmp_path / "f", b"old")
    with pytest.raises(SecretUnusable, match="there is no"):
        write_secret(tmp_path / "missing" / "f", SECRET, "the seed")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SecretUnusable, match="No space left") as caught:
        write_secret(path, SECRET, "the seed", replace=True)
    assert SECRET not in str(caught.value)
    assert path.read_text() == "old" and [one.name for one in tmp_path.iterdir()] == ["f"]


def test_the_mode_of_what_is_no_secret(tmp_path: Path) -> None:
    """Public keys may be world-readable."""
    secret_files.write_file(tmp_path / "f", "public", "the key set", mode=0o644, replace=False)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o644


def test_what_a_process_without_secrets_inherits() -> None:
    """Nothing of ours but what is known to be harmless; an address only if it has no password."""
    ours = ("NATS_SEED", "KEYS", "JOURNAL_SECRET", "LOG_SECRET", "TOKEN", "SIGNING_KEY", "ISSUER_SEED", "NEW")
    secret = {f"LOROGO_{name}": SECRET for name in ours} | {"LOROGO_NATS": f"nats://u:{SECRET}@host"}
    harmless = {"PATH": "/bin", "LOROGO_LOG": "debug", "LOROGO_NATS_SERVER": "/bin/nats-server"}
    assert without_secrets(secret | harmless) == harmless
    assert without_secrets({"LOROGO_NATS": "nats://host"}) == {"LOROGO_NATS": "nats://host"}

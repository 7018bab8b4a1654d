"""The release before this one: found in git, built into a wheel, unpacked into a folder for PYTHONPATH."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECONDS = 120.0


class NotHere(Exception):
    """The previous release is not available in this clone; the message has the reason and the command that
    helps.
    """


def commit(root: Path = ROOT) -> str:
    """The newest tag before HEAD, else the commit in PREVIOUS. Raises NotHere."""
    if _git(root, "rev-parse", "--is-inside-work-tree") != "true":
        raise NotHere(
            "this is no clone of the repository: the release before has to be built from its history"
        )
    head = _git(root, "rev-parse", "HEAD")
    tags = _git(root, "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname") or ""
    for tag in tags.split():
        if (tagged := _git(root, "rev-parse", f"{tag}^{{commit}}")) and tagged != head:
            return tagged
    lines = (root / "tests" / "upgrade" / "PREVIOUS").read_text(encoding="ascii").splitlines()
    (named,) = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if _git(root, "cat-file", "-t", named) != "commit":
        shallow = _git(root, "rev-parse", "--is-shallow-repository") == "true"
        help_ = "the clone is shallow: `git fetch --unshallow` brings it" if shallow else "is it on main?"
        raise NotHere(f"the commit {named[:12]} of tests/upgrade/PREVIOUS is not here; {help_}")
    if _git(root, "merge-base", "--is-ancestor", named, "HEAD") is None:
        raise AssertionError(
            f"the commit {named[:12]} of tests/upgrade/PREVIOUS is not in the history of HEAD"
        )
    return named


def journal_layout(revision: str, root: Path = ROOT) -> int:
    """The layout of journal records that this revision reads and writes."""
    found = _git(root, "grep", "-hE", "^LAYOUT = [0-9]+$", revision, "--", "lorogo_protocol") or ""
    (line,) = found.splitlines()
    return int(line.removeprefix("LAYOUT = "))


def unpacked(revision: str, place: Path, root: Path = ROOT) -> Path:
    """A folder with that revision's packages, as its wheel has them. Needs no network."""
    source, folder = place / "source", place / "previous"
    source.mkdir()
    archive = place / "source.tar"
    _run(["git", "archive", "--output", str(archive), revision], root)
    _run(["tar", "-xf", str(archive), "-C", str(source)], place)
    _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "wheel")], source)
    (wheel,) = (place / "wheel").glob("lorogo-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


def _git(root: Path, *arguments: str) -> str | None:
    """The output of git; None if it fails, or is not there."""
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _run(command: list[str], cwd: Path) -> None:
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert result.returncode == 0, (command, result.stdout, result.stderr)

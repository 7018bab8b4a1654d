"""Which release is the one before: a tag, else the commit in PREVIOUS; and why there may be none."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.upgrade.previous import ROOT, NotHere, commit

_IDENTITY = ("-c", "user.name=lorogo", "-c", "user.email=lorogo@localhost", "-c", "commit.gpgsign=false")


def git(place: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", *_IDENTITY, *arguments], cwd=place, capture_output=True, text=True, timeout=60, check=True
    )
    return result.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; PREVIOUS, in the second, names the first."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    place = tmp_path / "repository"
    (place / "tests" / "upgrade").mkdir(parents=True)
    git(place, "init", "--quiet", "--initial-branch=main")
    git(place, "commit", "--quiet", "--allow-empty", "--message=one")
    name(place, git(place, "rev-parse", "HEAD"))
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message=two")
    return place


def name(place: Path, revision: str) -> None:
    path = place / "tests" / "upgrade" / "PREVIOUS"
    path.write_text(f"# the release before this one\n{revision}\n", encoding="ascii")


def test_without_tags_the_file_says_which(repository: Path) -> None:
    """A commit that is in the history of HEAD."""
    assert commit(repository) == git(repository, "rev-parse", "HEAD~1")


def test_the_newest_tag_before_head_is_the_release_before(repository: Path) -> None:
    """By version, not by name or age; that of HEAD itself is the one being released."""
    git(repository, "commit", "--quiet", "--allow-empty", "--message=three")
    for tag, at in (("v0.9.0", "HEAD~2"), ("v0.10.0", "HEAD~1"), ("v0.11.0", "HEAD")):
        git(repository, "tag", tag, at)
    assert commit(repository) == git(repository, "rev-parse", "HEAD~1")


def test_a_shallow_clone_says_what_would_help(repository: Path, tmp_path: Path) -> None:
    """It has no history to build from."""
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    with pytest.raises(
        NotHere, match=r"is not here; the clone is shallow: `git fetch --unshallow` brings it"
    ):
        commit(tmp_path / "shallow")


def test_a_folder_that_is_no_clone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unpacked sdist, for example."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(NotHere, match="this is no clone of the repository"):
        commit(tmp_path)


def test_a_commit_of_another_branch_is_a_mistake(repository: Path) -> None:
    """Not a reason to skip: what is upgraded from must be what was released."""
    git(repository, "checkout", "--quiet", "-b", "side", "HEAD~1")
    git(repository, "commit", "--quiet", "--allow-empty", "--message=aside")
    aside = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "main")
    name(repository, aside)
    with pytest.raises(AssertionError, match="is not in the history of HEAD"):
        commit(repository)


def test_ours_is_one_commit() -> None:
    """A full name: a short one may become ambiguous."""
    lines = (ROOT / "tests" / "upgrade" / "PREVIOUS").read_text(encoding="ascii").splitlines()
    (named,) = [line for line in lines if not line.startswith("#")]
    assert len(named) == 40
    assert int(named, 16)

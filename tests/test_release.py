"""A release: its section in the changelog, files that come out the same, an example that runs."""

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

from tools import release, try_release

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
GOOD = """# Changelog

## [0.2.0] - 2026-11-17

### Added

- Something.

## [0.1.0] - 2026-10-01

- All.
"""


def test_the_changelog_is_in_order() -> None:
    """The newest section is that of our version, dated or called unreleased; older ones are dated."""
    assert release.wrong(CHANGELOG, release.version()) == []


def test_every_section_is_one() -> None:
    """A heading that is written otherwise would be read as a part of the section above it."""
    assert len(re.findall(r"^## ", CHANGELOG, re.MULTILINE)) == len(release.sections(CHANGELOG))


@pytest.mark.parametrize(
    ("changelog", "words"),
    [
        (GOOD, None),
        (GOOD.replace("2026-11-17", "unreleased"), None),
        (
            GOOD.replace("0.2.0", "0.3.0"),
            "pyproject.toml has version 0.2.0, but the newest section of CHANGELOG.md is 0.3.0",
        ),
        ("# Changelog\n", "the newest section of CHANGELOG.md is none"),
        (GOOD.replace("- Something.\n", ""), "the section of 0.2.0 is empty"),
        (GOOD.replace("2026-11-17", "soon"), "0.2.0 is dated 'soon'"),
        (GOOD.replace("2026-10-01", "unreleased"), "0.1.0 has no date, but is not the newest"),
        (GOOD.replace("2026-10-01", "2026-12-01"), "0.1.0 (2026-12-01) is below 0.2.0 (2026-11-17)"),
        (GOOD.replace("[0.1.0]", "[0.10.0]"), "0.10.0 (2026-10-01) is below 0.2.0"),
    ],
)
def test_mistakes_of_a_changelog_are_reported(changelog: str, words: str | None) -> None:
    """In a sentence that names the version."""
    found = release.wrong(changelog, "0.2.0")
    assert (found == []) if words is None else any(words in one for one in found), found


@pytest.mark.parametrize(
    ("changelog", "tags", "changed", "words"),
    [
        (GOOD, ["v0.1.0"], [], None),
        (
            GOOD.replace("2026-11-17", "unreleased"),
            [],
            [],
            "CHANGELOG.md has 0.2.0 as unreleased: add its date",
        ),
        (GOOD, ["v0.1.0", "v0.2.0"], [], "v0.2.0 is tagged already: raise the version"),
        (GOOD, [], ["a.py"], "not committed: a.py"),
        (GOOD.replace("2026-11-17", "soon"), [], [], "0.2.0 is dated 'soon'"),
    ],
)
def test_missing_parts_of_a_release_are_reported(
    changelog: str, tags: list[str], changed: list[str], words: str | None
) -> None:
    """Before anything is built."""
    found = release.missing(changelog, "0.2.0", tags, changed)
    assert (found == []) if words is None else any(words in one for one in found), found


@pytest.mark.slow
def test_the_files_come_out_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wheel and sdist are equal, built again from here and from the sdist; an older wheel is deleted, the
    checksums are printed.
    """
    (tmp_path / "lorogo-0.0.1-py3-none-any.whl").write_bytes(b"old")
    assert release.main(["build", str(tmp_path)]) == 0
    here = release.version()
    wheel = f"lorogo-{here}-py3-none-any.whl"
    assert {one.name for one in tmp_path.iterdir()} == {wheel, f"lorogo-{here}.tar.gz", "SHA256SUMS"}
    assert (
        f"{hashlib.sha256((tmp_path / wheel).read_bytes()).hexdigest()}  {wheel}" in capsys.readouterr().out
    )
    with zipfile.ZipFile(tmp_path / wheel) as packed:
        names = packed.namelist()
        assert f"\nVersion: {here}\n" in packed.read(f"lorogo-{here}.dist-info/METADATA").decode()
        assert len({one.date_time for one in packed.infolist()}) == 1
    for package in ROOT.glob("lorogo_*"):
        assert f"{package.name}/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "tools/", "bench/"))]


def test_the_tool_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2."""
    assert release.main(["everything"]) == 2
    assert "check [--draft] | build DIR" in capsys.readouterr().err


def test_the_example_that_is_tried_is_the_readmes() -> None:
    """With the address of the lorogo that was started for it, and nothing else changed."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = try_release.example(readme, "nats://127.0.0.1:1")
    compile(code, "README.md", "exec")
    assert code.replace("nats://127.0.0.1:1", "nats://127.0.0.1:4222") in readme


def test_make_release_tries_what_it_built() -> None:
    """In an environment that has nothing but the lock and the wheel, by its hash."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\nrelease:")[2].partition("\n\n")[0]
    order = [
        "tools/release.py check",
        "dist",
        "venv --clear",
        "requirements-run.lock",
        "-r build/release/wheel.txt",
        "try_release.py",
    ]
    places = [recipe.index(word) for word in order]
    assert places == sorted(places)

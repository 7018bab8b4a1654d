"""`make release`: check that this version can be released, and build reproducible files.

    python tools/release.py check [--draft]     # the changelog, the tag, the clone; exit code 1: not ready
    python tools/release.py build DIR           # wheel, sdist and SHA256SUMS in DIR, built twice and compared

The version is in pyproject.toml only. docs/RELEASING.md describes a release.
"""

import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "unreleased"
_HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<when>.+)$", re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_BUILD_SECONDS = 300.0


@dataclass(frozen=True)
class Section:
    """One version in the changelog."""

    version: str
    when: str  # a date, or `unreleased`
    lines: int  # entries

    @property
    def day(self) -> date | None:
        """The release date; None: unreleased, or not a date."""
        try:
            return date.fromisoformat(self.when)
        except ValueError:
            return None


def version() -> str:
    """Return the version in pyproject.toml."""
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(facts["project"]["version"])


def sections(changelog: str) -> list[Section]:
    """Return the versions in the order of the changelog: newest first."""
    found = list(_HEADING.finditer(changelog))
    ends = [one.start() for one in found[1:]] + [len(changelog)]
    return [
        Section(one["version"], one["when"].strip(), _entries(changelog[one.end() : end]))
        for one, end in zip(found, ends, strict=False)  # without a heading there is one end too many
    ]


def _entries(text: str) -> int:
    return sum(line.startswith("- ") for line in text.splitlines())


def wrong(changelog: str, here: str) -> list[str]:
    """Return the errors in the changelog, whether or not `here` is released."""
    found = sections(changelog)
    if not found or found[0].version != here:
        newest = found[0].version if found else "none"
        return [f"pyproject.toml has version {here}, but the newest section of CHANGELOG.md is {newest}"]
    problems = []
    if _VERSION.fullmatch(here) is None:
        problems.append(f"{here!r} is not a version: use three numbers separated by dots")
    if not found[0].lines:
        problems.append(f"the section of {here} is empty")
    if found[0].when != UNRELEASED and found[0].day is None:
        problems.append(f"{here} is dated {found[0].when!r}: use a date (2026-11-17), or `{UNRELEASED}`")
    problems += [f"{one.version} has no date, but is not the newest" for one in found[1:] if one.day is None]
    problems += [
        f"{older.version} ({older.when}) is below {newer.version} ({newer.when}), but is not older"
        for newer, older in itertools.pairwise(found)
        if _order(older.version) >= _order(newer.version)
        or (newer.day is not None and older.day is not None and older.day > newer.day)
    ]
    return problems


def missing(changelog: str, here: str, tags: list[str], changed: list[str]) -> list[str]:
    """Return what is missing for a release of `here`; `changed` are uncommitted files."""
    problems = wrong(changelog, here)
    if not problems and sections(changelog)[0].day is None:
        problems.append(f"CHANGELOG.md has {here} as {UNRELEASED}: add its date")
    if f"v{here}" in tags:
        problems.append(
            f"v{here} is tagged already: raise the version in pyproject.toml, and add its section"
        )
    if changed:
        problems.append(f"not committed: {', '.join(changed[:5])}{' ...' if changed[5:] else ''}")
    return problems


def _order(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def check(*, draft: bool) -> int:
    """Print what is missing; a draft is built nevertheless."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    tags = _git("tag", "--list", "v*", "--no-contains", "HEAD").split()
    changed = [line[3:] for line in _git("status", "--porcelain").splitlines()]
    found = missing(changelog, version(), tags, changed)
    for problem in found:
        print(f"not ready for release: {problem}", file=sys.stderr)
    if not found:
        print(f"lorogo {version()} is ready for release")
    return 0 if draft or not found else 1


def build(target: Path) -> int:
    """Build wheel and sdist twice, and the wheel once from the sdist; keep none if they differ."""
    moment = _git("log", "-1", "--format=%ct") or ""  # without git, hatchling uses its own time
    with tempfile.TemporaryDirectory() as place:
        first, second, third = (Path(place) / name for name in ("first", "second", "third"))
        for folder in (first, second):
            _hatchling(ROOT, folder, "sdist", "wheel", moment=moment)
        (sdist,) = first.glob("*.tar.gz")
        unpacked = Path(place) / "unpacked"
        unpacked.mkdir()
        unpack = ["tar", "-xzf", str(sdist), "-C", str(unpacked)]
        subprocess.run(unpack, check=True, timeout=_BUILD_SECONDS)
        (source,) = unpacked.iterdir()
        _hatchling(source, third, "wheel", moment=moment)
        sums = _sums(first)
        for folder in (second, third):
            for name, found in _sums(folder).items():
                if sums[name] != found:
                    print(f"{name} differs between two builds", file=sys.stderr)
                    return 1
        target.mkdir(parents=True, exist_ok=True)
        for old in (*target.glob("lorogo-*.whl"), *target.glob("lorogo-*.tar.gz")):
            old.unlink()  # of an earlier version
        for name in sums:
            shutil.copyfile(first / name, target / name)
    lines = [f"{found}  {name}\n" for name, found in sorted(sums.items())]
    (target / "SHA256SUMS").write_text("".join(lines), encoding="ascii")
    print("".join(lines), end="")
    return 0


def _hatchling(source: Path, target: Path, *kinds: str, moment: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    for kind in kinds:
        command += ["-t", kind]
    environment = {**os.environ, **({"SOURCE_DATE_EPOCH": moment} if moment else {})}
    result = subprocess.run(
        command,
        cwd=source,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if result.returncode:
        raise SystemExit(f"hatchling could not build {', '.join(kinds)}:\n{result.stdout}{result.stderr}")


def _sums(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.iterdir()}


def _git(*arguments: str) -> str:
    """Return the output of git; None if it fails or is not installed."""
    command = ["git", *arguments]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return ""
    return result.stdout.rstrip("\n") if result.returncode == 0 else ""


def main(arguments: list[str]) -> int:
    """Run a command. Exit code 2: wrong arguments."""
    match arguments:
        case ["check"]:
            return check(draft=False)
        case ["check", "--draft"]:
            return check(draft=True)
        case ["build", target]:
            return build(Path(target))
    print("python tools/release.py check [--draft] | build DIR", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

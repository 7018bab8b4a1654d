"""Dependencies: installed by hash, listed, and audited without assumptions."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tools import audit, sbom
from tools.audit import AuditResult

ROOT = Path(__file__).parents[1]
LOCKS = [
    "requirements.lock",
    "requirements-run.lock",
    *sorted(f"locks/{one.name}" for one in ROOT.glob("locks/*")),
]
NPM = ROOT / "web" / "package-lock.json"


# --------------------------------------------------------------------------------------- installing


def commands() -> list[str]:
    """Every line of what builds, tests or runs us, with its continuation."""
    scripts = [ROOT / "Makefile", *ROOT.glob("web/*.sh"), *ROOT.glob(".ci/*"), *ROOT.glob("*ockerfile*")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    return text.replace("\\\n", " ").splitlines()


def test_whatever_pip_installs_is_checked_by_hash() -> None:
    """But for ourselves, which bring nothing along."""
    installs = [line for line in commands() if "pip install" in line and not line.lstrip().startswith("#")]
    assert len(installs) >= 6
    for line in installs:
        for command in line.split("pip install")[1:]:
            alone = (
                "--no-deps" in command
                and "--no-build-isolation" in command
                and command.strip().endswith("-e .")
            )
            ours = "--no-index" in command and " /wheels/*.whl " in command  # made a step before
            assert alone or ours or ("--require-hashes" in command and " -r " in command), line
            assert "--no-deps" in command, f"a release of tomorrow could break it: {line}"


def test_npm_installs_what_its_lock_says() -> None:
    """`npm ci` installs nothing else, and every package in the lock has its SHA-512."""
    installs = [line for line in commands() if re.search(r"\bnpm (ci|install|i|add)\b", line)]
    assert installs
    assert all("npm ci" in line for line in installs)
    packages = json.loads(NPM.read_text(encoding="utf-8"))["packages"]
    assert len(packages) > 20
    assert [
        path
        for path, facts in packages.items()
        if path and not facts.get("integrity", "").startswith("sha512-")
    ] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_can_be_read_to_its_last_line(lock: str) -> None:
    """Every package has a version and hashes; nothing else stands in it."""
    assert list(sbom.pinned((ROOT / lock).read_text(encoding="utf-8")))


# --------------------------------------------------------------------------------------------- sbom


def test_the_bill_of_materials_has_exactly_what_the_locks_have(tmp_path: Path) -> None:
    """`make sbom`: each package of the lock once, with its version, and nothing else."""
    target = tmp_path / "new" / "sbom.json"
    subprocess.run(
        [sys.executable, "tools/sbom.py", str(target)], cwd=ROOT, check=True, capture_output=True, timeout=60
    )
    made = json.loads(target.read_text(encoding="utf-8"))
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    found = [(part["purl"].partition("/")[0], part["name"], part["version"]) for part in made["components"]]
    assert len(set(found)) == len(found)
    lines = (ROOT / "requirements-run.lock").read_text(encoding="utf-8").splitlines()
    pins = [re.match(r"([a-z0-9._-]+)==([^ ;]+)", line) for line in lines]
    expected = {("pkg:pypi", pin[1], pin[2]) for pin in pins if pin}
    assert {one for one in found if one[0] == "pkg:pypi"} == expected
    packages = json.loads(NPM.read_text(encoding="utf-8"))["packages"]
    shipped = {
        ("pkg:npm", path.rpartition("node_modules/")[2], facts["version"])
        for path, facts in packages.items()
        if path and not facts.get("dev") and not facts.get("devOptional")
    }
    assert {one for one in found if one[0] == "pkg:npm"} == shipped
    assert all(canonicalize_name(name) == name for kind, name, _ in found if kind == "pkg:pypi")


def test_the_bill_of_materials_is_the_same_whenever_it_is_made() -> None:
    """No time, no serial number, no path."""
    made = sbom.text()
    assert made == sbom.text()
    assert not re.search(r"timestamp|serialNumber|urn:uuid", made)
    assert str(ROOT) not in made


@pytest.mark.parametrize(
    "lock",
    [
        "a==1",
        "a>=1 \\\n    --hash=sha256:" + "0" * 64,
        "--hash=sha256:" + "0" * 64,
        "-e .",
        "a==1 \\\n    --hash=md5:00",
    ],
    ids=["no hash", "no pin", "a hash alone", "an editable", "a weak hash"],
)
def test_a_lock_that_is_none_makes_no_bill(lock: str) -> None:
    """Nothing is left out silently."""
    with pytest.raises(ValueError, match=r"has no hash|neither a pin nor a hash"):
        list(sbom.pinned(lock))


# -------------------------------------------------------------------------------------------- audit

CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (3)"}


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([CLEAN], 0),
        ([CLEAN, BAD], 1),
        ([CLEAN, SKIPPED], 3),
        ([SKIPPED], 3),
        ([BAD, SKIPPED], 1),
        ([], 3),
    ],
)
def test_what_was_not_looked_up_is_never_called_clean(rows: list[object], code: int) -> None:
    """0 only if every package was looked up; 1 if something is known; else 3."""
    one = audit.of_pip_audit("x.lock", json.dumps({"dependencies": rows, "fixes": []}), "")
    found, text = audit.report([AuditResult("other", 1), one])
    assert found == code
    assert ("PYSEC-1, fixed in 2.1" in text) is (BAD in rows)
    assert ("NOT CHECKED" in text) is (SKIPPED in rows or not rows)


@pytest.mark.parametrize("output", ["", "not JSON", "{}", "[]", "null", '{"dependencies": 3}'])
def test_a_tool_that_failed_says_why_and_is_not_clean(output: str) -> None:
    """Its last words are the reason."""
    for one in (
        audit.of_pip_audit("x", output, "Traceback\nConnectionError: no route\n"),
        audit.of_npm_audit("x", output, "npm error\nConnectionError: no route\n"),
    ):
        code, text = audit.report([one])
        assert code == 3
        assert "NOT CHECKED: ConnectionError: no route" in text


def test_npm_s_findings_and_refusals_are_reported() -> None:
    """A registry without that service answers with a message, and that is no clean bill."""
    facts = {"metadata": {"dependencies": {"total": 5}}, "vulnerabilities": {}}
    assert audit.report([audit.of_npm_audit("w", json.dumps(facts), "")])[0] == 0
    bad = {**facts, "vulnerabilities": {"ws": {"severity": "high", "range": "<8"}}}
    code, text = audit.report([audit.of_npm_audit("w", json.dumps(bad), "")])
    assert (code, "w: ws: high, <8" in text) == (1, True)
    code, text = audit.report([audit.of_npm_audit("w", '{"message": "405 Method Not Allowed"}', "")])
    assert (code, "405 Method Not Allowed" in text) == (3, True)
    nothing = {"metadata": {"dependencies": {"total": 0}}, "vulnerabilities": {}}
    assert audit.report([audit.of_npm_audit("w", json.dumps(nothing), "")])[0] == 3


def test_no_audit_at_all_is_not_clean(tmp_path: Path) -> None:
    """Nor is one whose tool is missing."""
    assert audit.report([])[0] == 3
    assert audit.main(["--pip-audit", str(tmp_path / "missing"), "requirements-run.lock"]) == 3

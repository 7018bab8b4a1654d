"""`make audit`: known vulnerabilities of the packages in our locks.

    python tools/audit.py --pip-audit build/audit/bin/pip-audit requirements.lock ...

Exit code 0: every package was checked, without a finding. 1: there are findings. 3: at least one package
could not be checked (the service was not reached, or does not know the package), so the result is incomplete.
pip-audit itself reports that as "no known vulnerabilities".
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOUND, UNKNOWN = 1, 3
_SECONDS = 300.0
_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of one audit."""

    what: str
    known: int = 0  # packages that were checked
    against: tuple[str, ...] = ()  # findings, a line each
    unknown: tuple[str, ...] = field(default=())  # why packages were not checked


def of_pip_audit(lock: str, output: str, errors: str) -> AuditResult:
    """Parse pip-audit's JSON; without any, its error output."""
    try:
        rows = list(json.loads(output)["dependencies"])
    except (ValueError, KeyError, TypeError):
        return AuditResult(lock, unknown=(_last_line(errors) or "pip-audit printed nothing",))
    against = [
        f"{row['name']} {row['version']}: {one['id']}"
        + (f", fixed in {', '.join(one['fix_versions'])}" if one.get("fix_versions") else "")
        for row in rows
        for one in row.get("vulns", ())
    ]
    skipped = [row["skip_reason"] for row in rows if "skip_reason" in row]
    unknown = (*skipped, *(["the lock is empty"] if not rows else []))
    return AuditResult(lock, len(rows) - len(skipped), tuple(against), unknown)


def of_npm_audit(what: str, output: str, errors: str) -> AuditResult:
    """Parse npm's JSON."""
    try:
        found = json.loads(output)
        facts = found["vulnerabilities"]
        count = found["metadata"]["dependencies"]["total"]
    except (ValueError, KeyError, TypeError):
        return AuditResult(what, unknown=(_message(output) or _last_line(errors) or "npm printed nothing",))
    against = [f"{name}: {fact['severity']}, {fact['range']}" for name, fact in sorted(facts.items())]
    return AuditResult(what, count, tuple(against), () if count else ("npm checked no package",))


def _message(output: str) -> str:
    try:
        found = json.loads(output)
    except ValueError:
        return ""
    return str(found.get("message", "")) if isinstance(found, dict) else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def report(audits: Sequence[AuditResult]) -> tuple[int, str]:
    """Return the exit code and the text to print."""
    lines: list[str] = []
    for audit in audits:
        lines += [f"{audit.what}: {line}" for line in audit.against]
        if audit.unknown:
            more = len(audit.unknown) - _SHOWN_MAX
            lines += [f"{audit.what}: NOT CHECKED: {why}" for why in audit.unknown[:_SHOWN_MAX]]
            lines += [f"{audit.what}: NOT CHECKED: and {more} more"] if more > 0 else []
        elif not audit.against:
            lines.append(f"{audit.what}: no known vulnerabilities in its {audit.known} packages")
    if any(audit.against for audit in audits):
        return FOUND, "\n".join([*lines, "== there are known vulnerabilities"])
    if any(audit.unknown for audit in audits) or not audits:
        return UNKNOWN, "\n".join([*lines, "== not every package could be checked: the result is incomplete"])
    return 0, "\n".join([*lines, "== no known vulnerabilities"])


def _run(command: Sequence[str], folder: Path) -> tuple[str, str]:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return done.stdout, done.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make audit")
    parser.add_argument("locks", nargs="+")
    parser.add_argument("--pip-audit", required=True)
    parser.add_argument("--npm", action="store_true", help="also check the packages of the web pages")
    parser.add_argument("--osv-url", help="query this OSV service instead of PyPI")
    chosen = parser.parse_args(arguments)
    asked = ["-s", "osv", "--osv-url", chosen.osv_url] if chosen.osv_url else []
    audits = []
    for lock in chosen.locks:
        command = [chosen.pip_audit, "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        audits.append(of_pip_audit(lock, *_run([*command, *asked, "-f", "json", "-r", lock], ROOT)))
    if chosen.npm:
        command = ["sh", "web/with-node.sh", "sh", "-c", "cd web && npm audit --json"]
        audits.append(of_npm_audit("web/package-lock.json", *_run(command, ROOT)))
    code, text = report(audits)
    print(text, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    raise SystemExit(main())

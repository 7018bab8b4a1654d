"""`make sbom`: the packages of a running lorogo, as CycloneDX 1.6 in JSON.

    python tools/sbom.py dist/lorogo-sbom.json

Lists the packages of requirements-run.lock and those of the web pages from npm. The same locks generate the
same bytes: the file has no time and no serial number.
"""

import base64
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^ \\;]+)(?: ; ([^\\]+?))? ?\\?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(lock: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """Return name, version, marker and hashes of each package in a pip lock. ValueError for other lines."""
    found: list[tuple[str, str, str, list[str]]] = []
    for number, line in enumerate(lock.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        if (pin := _PIN.fullmatch(words)) is not None:
            found.append((pin[1], pin[2], (pin[3] or "").strip(), []))
        elif (hashed := _HASH.match(words)) is not None and found:
            found[-1][3].append(hashed[1])
        else:
            raise ValueError(f"line {number} is neither a pin nor a hash: {words[:80]!r}")
    for name, version, marker, hashes in found:
        if not hashes:
            raise ValueError(f"{name} {version} has no hash")
        yield name, version, marker, hashes


def packed(lock: str) -> Iterator[tuple[str, str, str]]:
    """Return name, version and SHA-512 (hex) of each package of npm's lock, without developer packages."""
    for path, facts in json.loads(lock)["packages"].items():
        if not path or facts.get("dev") or facts.get("devOptional"):
            continue
        kind, _, code = facts["integrity"].partition("-")
        if kind != "sha512":
            raise ValueError(f"{path} has no sha512")
        name = facts.get("name") or path.rpartition("node_modules/")[2]
        yield name, facts["version"], base64.b64decode(code).hex()


def _library(kind: str, name: str, version: str) -> dict[str, object]:
    purl = f"pkg:{kind}/{quote(name, safe='/')}@{quote(version, safe='+')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _of_pypi(name: str, version: str, marker: str, hashes: list[str]) -> dict[str, object]:
    files = [{"alg": "SHA-256", "content": one} for one in sorted(hashes)]
    made = _library("pypi", name, version)
    made["externalReferences"] = [
        {"type": "distribution", "url": f"https://pypi.org/project/{name}/{version}/", "hashes": files}
    ]
    if marker:
        made["properties"] = [{"name": "lorogo:only-where", "value": marker}]
    return made


def _of_npm(name: str, version: str, digest: str) -> dict[str, object]:
    return {**_library("npm", name, version), "hashes": [{"alg": "SHA-512", "content": digest}]}


def bill(version: str, python_lock: str, npm_lock: str) -> dict[str, object]:
    """Return the bill of materials."""
    parts = [_of_pypi(*one) for one in pinned(python_lock)] + [_of_npm(*one) for one in packed(npm_lock)]
    unique = {str(part["bom-ref"]): part for part in parts}
    ours = f"pkg:pypi/lorogo@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": "lorogo",
                "version": version,
                "purl": ours,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [unique[ref] for ref in sorted(unique)],
    }


def text() -> str:
    """Return the file's text, for the current locks."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    python_lock = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
    npm_lock = (ROOT / "web" / "package-lock.json").read_text(encoding="utf-8")
    return json.dumps(bill(version, python_lock, npm_lock), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("python tools/sbom.py FILE", file=sys.stderr)
        return 2
    target = Path(arguments[0])
    target.parent.mkdir(parents=True, exist_ok=True)
    made = text()
    target.write_text(made, encoding="utf-8")
    print(f"== {target}: {len(json.loads(made)['components'])} components")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

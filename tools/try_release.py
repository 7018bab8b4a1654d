"""`make release`: test that the installed lorogo does what the README shows.

    ENVIRONMENT/bin/python -I tools/try_release.py README.md VERSION

Runs `lorogo dev` of this environment and the README's first example with it, and loads the web pages. It uses
its own folder, so that no file of the repository is involved.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

_SECONDS = 60.0
_ADDRESS = "nats://127.0.0.1:4222"


def example(readme: str, url: str) -> str:
    """Return the first Python block of the README, with another NATS address."""
    found = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert found is not None, "the README has no Python block"
    assert found[1].count(_ADDRESS) == 1, f"the example does not contain {_ADDRESS} exactly once"
    return found[1].replace(_ADDRESS, url)


def main(readme: Path, version: str) -> None:
    spec = importlib.util.find_spec("lorogo_client")
    assert spec is not None and spec.origin is not None, "lorogo is not installed here"
    assert Path(spec.origin).is_relative_to(sys.prefix), f"{spec.origin} is outside of this environment"
    lorogo = Path(sys.prefix) / "bin" / "lorogo"
    with tempfile.TemporaryDirectory() as place:

        def run(*command: str | Path) -> str:
            result = subprocess.run(
                list(map(str, command)),
                cwd=place,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            assert result.returncode == 0, (command, result.stdout, result.stderr)
            return result.stdout

        printed = run(lorogo, "--version")
        assert printed == f"lorogo {version}\n", f"{printed!r} is not {version}"
        screen = Path(place) / "screen"
        with screen.open("wb") as out:
            dev = subprocess.Popen(
                [str(lorogo), "dev", "--port", "0", "--web-port", "0"], cwd=place, stdout=out
            )
        try:
            words = _until_it_runs(dev, screen)
            url, web = (_found(name, words) for name in ("NATS", "dashboard"))
            script = Path(place) / "example.py"
            script.write_text(example(readme.read_text(encoding="utf-8"), url), encoding="utf-8")
            saved = run(sys.executable, "-I", script)
            assert re.fullmatch(r"saved at \d+, durability journal\n", saved), saved
            kept = run(lorogo, "doc", "get", "minutes-2026-11", "--nats", url)
            assert "hello" in kept, kept
            with urllib.request.urlopen(web, timeout=_SECONDS) as page:  # noqa: S310 - its own address
                assert b"<script" in page.read(), "the web pages are not in the wheel"
        finally:
            dev.terminate()
            dev.wait(_SECONDS)
        assert dev.returncode == 0, dev.returncode
    print(f"lorogo {version}, installed: the README's example is {saved.strip()}; the pages are there")


def _until_it_runs(dev: "subprocess.Popen[bytes]", screen: Path) -> str:
    deadline = time.monotonic() + _SECONDS
    while "asyncio.run(main())" not in (words := screen.read_text()):
        assert dev.poll() is None, f"lorogo dev exited: {words}"
        assert time.monotonic() < deadline, f"lorogo dev did not start: {words}"
        time.sleep(0.05)
    return words


def _found(name: str, words: str) -> str:
    found = re.search(rf"^ *{name} +(\S+)", words, re.MULTILINE)
    assert found is not None, f"no {name}: {words}"
    return found[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

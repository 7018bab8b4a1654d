"""A test of the started images: health checks pass, an edit is ACKed, SIGTERM sets the document DOWN.

They start as the Dockerfile specifies, with a real nats-server, on loopback. Users, namespaces and limits of
an engine are not tested; that no file is written outside of /data and /tmp is.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tools.image import Image, mapped

_SECONDS = 60.0
_DOCUMENT = "image-trial"


class TrialFailed(AssertionError):
    """The test failed; has the step and the reason."""


def tried(
    server: Image,
    gateway: Image,
    nats_server: Path,
    scratch: Path,
    say: Callable[[str], None],
    more: Mapping[str, str] | None = None,
) -> None:
    """Start both, with `more` in their environment, and run the checks. Raises Failed."""
    before = {image.root: written(image) for image in (server, gateway)}
    nats_port, web_port = free_port(), free_port()
    settings = {"LOROGO_NATS": f"nats://127.0.0.1:{nats_port}", "LOROGO_OPEN": "1", **(more or {})}
    store = ["-js", "-sd", str(scratch / "nats"), "-a", "127.0.0.1", "-p", str(nats_port)]
    asked_at = [*gateway.checks(), "--url", f"http://127.0.0.1:{web_port}"]
    (server.root / "data").mkdir(exist_ok=True)
    with (
        started([str(nats_server), *store], scratch, {}, scratch / "nats.log"),
        running(server, [], settings, scratch / "server.log") as serving,
        running(
            gateway, ["--host", "127.0.0.1", "--port", str(web_port)], settings, scratch / "gateway.log"
        ) as gate,
    ):
        until("the server to become healthy", lambda: unwell(server, server.checks(), settings))
        until("the gateway to become healthy", lambda: unwell(gateway, asked_at, settings))
        until("the gateway to become ready", lambda: unwell(gateway, [*asked_at, "--ready"], settings))
        say("health checks pass")
        edited(web_port)
        say("an edit is ACKed")
        if state(server, settings) != "UP":
            raise TrialFailed("the document is not UP")
        ended("server", serving)
        if (found := state(server, settings)) != "DOWN":
            raise TrialFailed(f"after SIGTERM the document is {found}, not DOWN")
        say("SIGTERM: the server exits with 0, the document is DOWN")
        if not unwell(server, server.checks(), settings):
            raise TrialFailed("a stopped server is reported as healthy")
        ended("gateway", gate)
        say("SIGTERM: the gateway exits with 0")
    for image in (server, gateway):
        if elsewhere := sorted(written(image) - before[image.root]):
            raise TrialFailed(f"files were written outside of /data and /tmp: {elsewhere[:5]}")
    say("no file was written outside of /data and /tmp")


def unwell(image: Image, words: list[str], settings: dict[str, str]) -> str:
    """Return the output of a failed health check, else an empty text."""
    result = subprocess.run(
        words,
        cwd=image.cwd,
        env=environment(image, settings),
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    return "" if result.returncode == 0 else f"{result.returncode}: {result.stderr.decode()[-500:]}"


def edited(port: int) -> None:
    """Change a document, which the server confirms with its ACK, and read it."""
    where = f"/v1/documents/{_DOCUMENT}"
    patch = json.dumps([{"op": "add", "path": "/title", "value": "Hello"}])
    kind = {"content-type": "application/json-patch+json"}
    found = ""
    for method, body, path in (("PATCH", patch, where), ("GET", None, f"{where}?path=$.title")):
        connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
        try:
            connection.request(method, path, body, kind)
            answer = connection.getresponse()
            found = answer.read().decode(errors="replace")
        except (OSError, HTTPException) as error:
            raise TrialFailed(f"{method} {path}: {error}") from error
        finally:
            connection.close()
        if answer.status >= 300:
            raise TrialFailed(f"{method} {path}: {answer.status} {found[:500]}")
    if "Hello" not in found:
        raise TrialFailed(f"{where} returned {found[:200]}")


def state(image: Image, settings: dict[str, str]) -> str:
    """Return the document's status in NATS, read by the image's own command."""
    result = subprocess.run(
        image.words("status", _DOCUMENT, "--json"),
        cwd=image.cwd,
        env=environment(image, settings),
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if result.returncode:
        raise TrialFailed(result.stderr.decode())
    return str(json.loads(result.stdout)["state"])


def environment(image: Image, settings: dict[str, str]) -> dict[str, str]:
    """Return a container's environment variables, and no others."""
    return {**image.settings(), **settings, "TMPDIR": str(image.root / "tmp")}


@contextmanager
def running(
    image: Image, more: list[str], settings: dict[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the image with further options."""
    with started([*image.words(), *more], image.cwd, environment(image, settings), log) as process:
        yield process


@contextmanager
def started(
    words: list[str], cwd: Path, settings: dict[str, str], log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process, and kill it afterwards; its log is added to an error."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, cwd=cwd, env=settings, stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )
    try:
        yield process
    except BaseException as error:
        error.add_note(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(_SECONDS)


def ended(name: str, process: "subprocess.Popen[bytes]") -> None:
    """Stop it as an engine does."""
    process.send_signal(signal.SIGTERM)
    if (code := process.wait(_SECONDS)) != 0:
        raise TrialFailed(f"the {name} exited with {code}")


def written(image: Image) -> set[tuple[str, int, int]]:
    """Return every file outside of the writable folders, with size and time."""
    writable = {Path(mapped(folder, image.root)) for folder in ("/tmp", *image.volumes)}  # noqa: S108  # in its folder
    found = set()
    for parent, folders, files in os.walk(image.root):
        folders[:] = [name for name in folders if Path(parent) / name not in writable]
        for name in files:
            path = Path(parent) / name
            facts = path.lstat()
            found.add((str(path), facts.st_size, facts.st_mtime_ns))
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def until(what: str, wrong: Callable[[], str]) -> None:
    """Wait until the check returns no problem. Raises Failed."""
    deadline = time.monotonic() + _SECONDS
    while problem := wrong():
        if time.monotonic() > deadline:
            raise TrialFailed(f"waited {_SECONDS:g} s for {what}: {problem}")
        time.sleep(0.1)

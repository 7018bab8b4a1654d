"""examples/react: its types, its build, and two windows of it with a Python client beside them."""

import asyncio
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

import lorogo_client
from tests.examples.running import EXAMPLES, SECONDS, module, until
from tests.gateway.browsers import chromium, visit
from tests.gateway.npm import WEB, node
from tests.gateway.stacks import stack

FOLDER = EXAMPLES / "react"
ITEMS = module("todo/items.py")


def packages(folder: Path) -> dict[str, str]:
    """The packages and versions that a package.json requires."""
    found = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    return {**found["dependencies"], **found["devDependencies"]}


def copied(folder: Path) -> Path:
    """The example in a folder of its own, with the packages that `make pages` fetched."""
    if not (WEB / "node_modules" / "react").is_dir():
        pytest.skip("React is not in web/node_modules: `make pages` fetches what web/package.json names")
    target = folder / "react"
    shutil.copytree(FOLDER, target, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (target / "node_modules").symlink_to(WEB / "node_modules")
    return target


def run(folder: Path, *command: str, **environment: str) -> None:
    done = subprocess.run(
        [node(), *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, and no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is of the base class
        """Log nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server for these files: another origin than the gateway's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_it_requires_the_tested_versions() -> None:
    """The example's package.json and that of the pages name the same versions of shared packages."""
    ours = packages(WEB)
    asked = packages(FOLDER)
    shared = asked.keys() & ours.keys()
    assert {"loro-crdt", "loro-websocket", "loro-adaptors", "vite", "typescript"} <= shared
    assert {name: asked[name] for name in shared} == {name: ours[name] for name in shared}


@pytest.mark.node
@pytest.mark.slow
def test_its_types_are_right_and_it_builds(tmp_path: Path) -> None:
    """TypeScript, strict; then the build for production."""
    folder = copied(tmp_path)
    run(folder, "node_modules/typescript/bin/tsc", "--noEmit")
    run(folder, "node_modules/vite/bin/vite.js", "build")
    assert (folder / "dist" / "index.html").is_file()


@pytest.mark.browser
@pytest.mark.node
@pytest.mark.nats
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_windows_and_python_share_a_list(tmp_path: Path) -> None:
    """Each window and Python see the others' additions, ticks, moves and removals; the server has them; no
    other host gets a request.

    The development build of React mounts every component twice (StrictMode): no error may be left uncaught.
    """
    folder = copied(tmp_path)
    (folder / "dist").mkdir()
    with served(folder / "dist") as page_origin:
        async with stack(tmp_path) as place:
            place.gateway.kill()
            place.gate("--origin", page_origin)
            gateway = f"ws{place.web.removeprefix('http')}/ws"
            vite = (folder, "node_modules/vite/bin/vite.js", "build", "--mode", "development")
            build = partial(run, *vite, NODE_ENV="development", VITE_GATEWAY=gateway)
            await asyncio.to_thread(build)
            async with (
                chromium() as browser,
                lorogo_client.connect(place.nats.url) as client,
                client.open("groceries") as session,
            ):
                changes = session.changes()
                ana = await visit(browser, f"{page_origin}/#groceries")
                ben = await visit(browser, f"{page_origin}/#groceries")
                for visitor in (ana, ben):
                    await expect(visitor.page.locator("#state")).to_have_attribute("data-state", "live")
                await _add(ana.page, "milk")
                await expect(ben.page.locator("li")).to_have_count(1)
                await _add(ben.page, "bread")
                await until(lambda: len(ITEMS.rows(session.doc)) == 2, lambda: anext(changes))
                ITEMS.done(session.doc, 1)
                session.commit()
                await expect(ana.page.get_by_label("milk")).to_be_checked()
                await expect(ben.page.get_by_label("milk")).to_be_checked()
                await ana.page.locator("li", has_text="bread").get_by_role("button", name="up").click()
                await until(lambda: _texts(session.doc) == ["bread", "milk"], lambda: anext(changes))
                await ben.page.locator("li", has_text="milk").get_by_role("button", name="remove").click()
                await expect(ana.page.locator("li")).to_have_count(1)
                await until(lambda: _texts(session.doc) == ["bread"], lambda: anext(changes))
                await session.flush(SECONDS)
                assert ana.errors == ben.errors == []
                assert ana.foreign == ben.foreign == []


def _texts(doc: object) -> list[str]:
    return [row["text"] for row in ITEMS.rows(doc)]


async def _add(page: Page, text: str) -> None:
    await page.get_by_label("What is to be done").fill(text)
    await page.get_by_role("button", name="add").click()
    await expect(page.locator("li", has_text=text)).to_be_visible()

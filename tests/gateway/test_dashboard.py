"""The dashboard in a real Chromium, with answers that are made up: hostile ones, missing ones, none."""

import json
import re
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect
from starlette.applications import Starlette

from lorogo_gateway.server.pages import Pages
from tests.gateway.browsers import chromium

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

HOME = "http://gateway.test"
EVIL = "<img src=x onerror=alert(1)>"
TILES = ("documents", "servers", "updates", "ack", "wal", "journal", "snapshots", "connections")
FAILED = {"document": "broken", "trace": "4bf92f35", "time": "2026-01-02T03:04:05+00:00"}
Answer = tuple[int, object]
# How many pixels the highest stroke of a chart has in its own colour: a plateau has many, a peak has few.
PLATEAU = """figure => {
  const canvas = figure.querySelector("canvas"), picture = canvas.getContext("2d");
  const { backgroundColor } = getComputedStyle(figure.querySelector(".key i"));
  const [r, g, b] = backgroundColor.match(/\\d+/g).map(Number);
  const { data } = picture.getImageData(0, 0, canvas.width, canvas.height);
  for (let y = 0; y < canvas.height; y += 1) {
    let found = 0;
    for (let at = 4 * y * canvas.width; at < 4 * (y + 1) * canvas.width; at += 4) {
      if (data[at] === r && data[at + 1] === g && data[at + 2] === b && data[at + 3] === 255) found += 1;
    }
    if (found > 0) return found;
  }
  return 0;
}"""
# Of each tile its place and where its parts begin.
TILE_BOXES = """tiles => tiles.map(tile => {
  const { top, bottom, left, right } = tile.getBoundingClientRect();
  const begin = part => tile.querySelector(part).getBoundingClientRect().top;
  const [value, note] = [begin(".tile-value"), begin(".tile-note")];
  return { top, bottom, left, right, value, note };
})"""


class Invented:
    """A gateway with answers that a test sets; all other paths are 404."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}  # by method and path
        self.asked: list[str] = []
        self.gone = False
        self.errors: list[str] = []
        app = Starlette(routes=Pages().routes())
        self._pages = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HOME)

    def says(self, path: str, body: object, *, method: str = "GET", status: int = 200) -> None:
        self.answers[f"{method} {path}"] = (status, body)

    async def serve(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if not path.startswith("/v1/"):
            page = await self._pages.get(path, headers={"accept-encoding": "identity"})
            await route.fulfill(status=page.status_code, headers=dict(page.headers), body=page.content)
            return
        question = f"{route.request.method} {path}"
        self.asked.append(question)
        if self.gone:
            await route.abort()
            return
        unknown = {"title": "Not Found", "status": 404, "detail": "nothing", "code": "not-found"}
        status, body = self.answers.get(question, (404, unknown))
        await route.fulfill(status=status, body=json.dumps(body), content_type="application/json")

    async def show(self, browser: Browser, place: str, width: int = 1280) -> Page:
        """A window on that view, whose clock can be turned on."""
        page = await (await browser.new_context(viewport={"width": width, "height": 800})).new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        await page.clock.install()
        await page.route("**/*", self.serve)
        await page.goto(f"{HOME}/dashboard#/{place}")
        return page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if not Pages().built:
        pytest.skip("the pages are not built: `make pages`")
    async with chromium() as opened:
        yield opened


@pytest.fixture
def gateway() -> Invented:
    gateway = Invented()
    gateway.says("/v1/overview", {})
    gateway.says("/v1/overview/samples", {})
    return gateway


async def test_what_is_not_known_is_a_dash(browser: Browser, gateway: Invented) -> None:
    """A gateway that answers and knows nothing: no figure is shown as 0."""
    page = await gateway.show(browser, "overview")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    for name in TILES:
        value = page.locator(f"#tile-{name} .tile-value")
        await expect(value).to_contain_text("\N{EN DASH}")
        await expect(value).not_to_contain_text("0")
    assert gateway.errors == []


async def test_figures_of_acks_stay_while_none_come(browser: Browser, gateway: Invented) -> None:
    """The tile has what the chart has: the last figures that there were, and how old they are."""
    seconds = [f"2026-01-02T03:04:{second:02}+00:00" for second in (0, 5, 10)]
    gateway.says("/v1/overview", {"ack": {"p50_us": None, "p99_us": None}})
    columns = {"time": seconds, "ack_p50_us": [900, 2000, None], "ack_p99_us": [1800, 4000, None]}
    gateway.says("/v1/overview/samples", columns)
    page = await gateway.show(browser, "overview")
    tile = page.locator("#tile-ack")
    await expect(tile.locator(".tile-value")).to_have_text("2.00 ms / 4.00 ms")
    await expect(tile.locator(".tile-note")).to_contain_text(re.compile(r"last known, .+"))
    gateway.says("/v1/overview", {"ack": {"p50_us": 700, "p99_us": 900}})
    await page.clock.run_for(2_500)
    await expect(tile.locator(".tile-value")).to_have_text("700 µs / 900 µs")
    await expect(tile.locator(".tile-note")).to_have_text("on disk, applied, recoverable")


async def test_one_sample_is_as_wide_as_its_time(browser: Browser, gateway: Invented) -> None:
    """A rate, or a size, of one sample is a block from the sample before it, no wedge that grows to it."""
    seconds = [f"2026-01-02T03:04:{second:02}+00:00" for second in range(0, 60, 5)]
    one = [0] * 11 + [10]
    columns = {"time": seconds, "updates_per_second": one, "wal_bytes": [1000 * value for value in one]}
    gateway.says("/v1/overview/samples", columns)
    page = await gateway.show(browser, "overview")
    for name in ("throughput", "wal"):
        chart = page.locator(f"#chart-{name}")
        await expect(chart.locator("canvas")).to_be_visible()
        await page.clock.run_for(100)  # it draws with the next frame
        assert await chart.evaluate(PLATEAU) >= 20


@pytest.mark.parametrize("width", [390, 360])
async def test_tiles_of_a_phone_are_even(browser: Browser, gateway: Invented, width: int) -> None:
    """Every row is full, and beside each other tiles, figures and notes begin and end at one height."""
    sizes = {"journal_bytes": 524_000, "snapshot_bytes": 590, "wal": {"bytes": 58_000, "messages": 167}}
    sync = {"servers": {"total": 1, "ready": 1}, "sync": {"p50_us": 6140, "p99_us": 131_000}}
    sockets = {"sockets": {"connections": 2, "documents": 1}}
    rates = {"throughput": {"updates_per_second": 17, "bytes_per_second": 1600}}
    gateway.says("/v1/overview", {"connected": True, **sizes, **sync, **sockets, **rates})
    page = await gateway.show(browser, "overview", width)
    await expect(page.locator("#tile-journal .tile-note")).to_contain_text("fdatasync")
    tiles = await page.locator(".tile").evaluate_all(TILE_BOXES)
    rows: dict[float, list[dict[str, float]]] = {}
    for tile in tiles:
        rows.setdefault(tile["top"], []).append(tile)
    assert [len(row) for row in rows.values()] == [1, 2, 1, 2, 2]
    for row in rows.values():
        assert (row[0]["left"], row[-1]["right"]) == (tiles[0]["left"], tiles[0]["right"])
        for side in ("bottom", "value", "note"):
            assert len({round(tile[side], 1) for tile in row}) == 1, side


async def test_hostile_text_is_text(browser: Browser, gateway: Invented) -> None:
    """Ids, servers, health, reasons and problems that look like markup are shown as they are."""
    moved = {"document": EVIL, "from": EVIL, "to": EVIL, "time": "2026-01-02T03:04:05Z"}
    failed = {**FAILED, "document": EVIL, "trace": EVIL}
    gateway.says("/v1/overview", {"documents": {"ERROR": 1}, "takeovers": [moved], "errors": [failed]})
    gateway.says("/v1/documents", {"documents": [{"document": EVIL, "state": EVIL, "server": EVIL}]})
    gateway.says("/v1/servers", {"servers": [{"server": EVIL, "version": EVIL, "health": [EVIL]}]})
    gateway.says("/v1/rejected", {"rejected": [{"document": EVIL, "reason": EVIL, "message": EVIL}]})
    page = await gateway.show(browser, "overview")
    await expect(page.locator("#takeovers li")).to_contain_text(f"{EVIL} moved from {EVIL} to {EVIL}")
    for view in ("documents", "servers", "rejected", "errors"):
        await page.locator(f"#tabs a[data-view={view}]").click()
        await expect(page.locator(f"#{view}")).to_contain_text(EVIL)
        assert await page.locator("main img").count() == 0
    assert gateway.errors == []


async def test_reset_is_asked_twice_and_done_once(browser: Browser, gateway: Invented) -> None:
    """The first click opens a confirmation; after the second click the page reports the reset."""
    reset = "POST /v1/documents/broken/reset"
    gateway.says("/v1/overview", {"documents": {"ERROR": 1}, "errors": [FAILED]})
    gateway.says("/v1/documents/broken/reset", {"document": "broken", "reset": True}, method="POST")
    page = await gateway.show(browser, "errors")
    await page.get_by_test_id("reset").click()
    await page.get_by_test_id("reset-cancel").click()
    await page.get_by_test_id("reset").click()
    assert reset not in gateway.asked
    gateway.says("/v1/overview", {"documents": {"ERROR": 0}, "errors": []})
    await page.get_by_test_id("reset-confirm").click()
    await expect(page.get_by_test_id("errors-result")).to_contain_text("broken was reset")
    await expect(page.locator("#errors")).to_be_hidden()
    assert gateway.asked.count(reset) == 1


async def test_a_reset_that_is_refused_says_why(browser: Browser, gateway: Invented) -> None:
    """The document stays in the list, with the gateway's words."""
    gateway.says("/v1/overview", {"documents": {"ERROR": 1}, "errors": [FAILED]})
    no = {"detail": "this gateway is read-only", "code": "read-only"}
    gateway.says("/v1/documents/broken/reset", no, method="POST", status=403)
    page = await gateway.show(browser, "errors")
    await page.get_by_test_id("reset").click()
    await page.get_by_test_id("reset-confirm").click()
    await expect(page.get_by_test_id("reset-result")).to_contain_text("this gateway is read-only")


async def test_a_look_at_a_document_that_is_down_does_not_start_it(
    browser: Browser, gateway: Invented
) -> None:
    """The page requests history and sizes from the owner only when the user opens them."""
    gateway.says("/v1/documents/quiet/status", {"document": "quiet", "state": "DOWN", "owner": None})
    gateway.says("/v1/documents/quiet/history", {"versions": [{"version": "vAb", "sequence": 7}]})
    gateway.says("/v1/documents/quiet/sizes", {"time": [], "operations": [], "operations_now": 3})
    page = await gateway.show(browser, "documents/quiet")
    await expect(page.get_by_test_id("open-editor")).to_have_attribute("href", "/d/quiet")
    await page.clock.run_for(30_000)
    assert {question for question in gateway.asked if "quiet" in question} == {
        "GET /v1/documents/quiet/status"
    }
    await page.get_by_test_id("history-load").click()
    await expect(page.locator("#history")).to_contain_text("vAb")


async def test_a_gateway_that_is_gone_is_not_hidden(browser: Browser, gateway: Invented) -> None:
    """The page shows the time since the last answer, keeps its content, polls less often, and recovers."""
    gateway.says("/v1/overview", {"connected": True, "servers": {"total": 3, "ready": 2}})
    page = await gateway.show(browser, "overview")
    servers, connection = page.locator("#tile-servers .tile-value"), page.locator("#connection")
    await expect(servers).to_have_text("2 of 3")
    gateway.gone = True
    await page.clock.run_for(2_500)
    await expect(connection).to_have_attribute("data-state", "lost")
    await page.clock.run_for(10_000)
    await expect(connection).to_contain_text(re.compile(r"last answer \d+ s ago"))
    await expect(page.locator("#connection-spoken")).to_contain_text("connection lost")
    await expect(servers).to_have_text("2 of 3")
    gateway.gone = False
    await page.clock.run_for(31_000)
    await expect(connection).to_have_attribute("data-state", "live")

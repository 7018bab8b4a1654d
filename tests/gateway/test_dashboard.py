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

from lorogo_gateway.pages import Pages
from tests.gateway.browsers import chromium

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

HOME = "http://gateway.test"
EVIL = "<img src=x onerror=alert(1)>"
TILES = ("documents", "servers", "updates", "ack", "wal", "journal", "snapshots", "connections")
FAILED = {"document": "broken", "trace": "4bf92f35", "time": "2026-01-02T03:04:05+00:00"}
Answer = tuple[int, object]


class Invented:
    """A gateway that says what it is told to; paths that it was told nothing of are not there."""

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

    async def show(self, browser: Browser, place: str) -> Page:
        """A window on that view, whose clock can be turned on."""
        page = await (await browser.new_context()).new_page()
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
    """The first click only asks; after the second the page says what was done."""
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
    await expect(page.get_by_test_id("errors-said")).to_contain_text("broken was reset")
    await expect(page.locator("#errors")).to_be_hidden()
    assert gateway.asked.count(reset) == 1


async def test_a_reset_that_is_refused_says_why(browser: Browser, gateway: Invented) -> None:
    """The document stays in the list, with the gateway's words."""
    gateway.says("/v1/overview", {"documents": {"ERROR": 1}, "errors": [FAILED]})
    no = {"detail": "nobody may write here", "code": "read-only"}
    gateway.says("/v1/documents/broken/reset", no, method="POST", status=403)
    page = await gateway.show(browser, "errors")
    await page.get_by_test_id("reset").click()
    await page.get_by_test_id("reset-confirm").click()
    await expect(page.get_by_test_id("reset-result")).to_contain_text("nobody may write here")


async def test_a_look_at_a_document_that_is_down_does_not_start_it(
    browser: Browser, gateway: Invented
) -> None:
    """History and sizes are asked of its owner only when somebody wants them."""
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
    """The page says since when it has heard nothing, keeps what it has, asks less often, and comes back."""
    gateway.says("/v1/overview", {"connected": True, "servers": {"total": 3, "ready": 2}})
    page = await gateway.show(browser, "overview")
    servers, connection = page.locator("#tile-servers .tile-value"), page.locator("#connection")
    await expect(servers).to_have_text("2 of 3")
    gateway.gone = True
    await page.clock.run_for(2_500)
    await expect(connection).to_have_attribute("data-state", "lost")
    await page.clock.run_for(10_000)
    await expect(connection).to_contain_text(re.compile(r"last heard \d+ s ago"))
    await expect(page.locator("#connection-spoken")).to_contain_text("connection lost")
    await expect(servers).to_have_text("2 of 3")
    gateway.gone = False
    await page.clock.run_for(31_000)
    await expect(connection).to_have_attribute("data-state", "live")

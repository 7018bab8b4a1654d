"""People with browsers: the editor and the dashboard in a real Chromium, against real processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.support import eventually
from tests.gateway.browsers import Visitor, chromium, visit
from tests.gateway.stacks import Stack, stack

WRITTEN = """editor => {
  const copy = editor.cloneNode(true);
  copy.querySelectorAll("[data-testid=their-caret]").forEach(widget => widget.remove());
  return [...copy.children].map(block => block.textContent.trim()).join("\\n");
}"""
BESIDE_CARET = """editor => {
  const caret = editor.querySelector("[data-testid=their-caret]");
  if (!caret) return null;
  const block = caret.closest("p");
  const [before, after] = [new Range(), new Range()];
  before.setStart(block, 0);
  before.setEndBefore(caret);
  after.setStartAfter(caret);
  after.setEnd(block, block.childNodes.length);
  return [String(before), String(after)];
}"""
BAR = """bar => [bar, bar.querySelector("[data-state=UP]")].map(part => part.getBoundingClientRect().width)"""

pytestmark = [pytest.mark.browser, pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Stack]:
    async with stack(tmp_path) as made:
        yield made


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


def editor(page: Page) -> Locator:
    return page.locator("#editor")


async def state(page: Page, word: str) -> None:
    """Wait until the mark on the page has this state."""
    await expect(page.locator("#state")).to_have_attribute("data-state", word)


async def opened(browser: Browser, stack: Stack, document: str) -> Visitor:
    visitor = await visit(browser, f"{stack.web}/d/{document}")
    await state(visitor.page, "saved")
    return visitor


async def text(page: Page) -> str:
    """The text of the editor without the names at other users' cursors."""
    return str(await editor(page).evaluate(WRITTEN))


async def same_text(*pages: Page) -> str:
    """Wait until all pages show the same text; return it."""

    async def same() -> bool:
        return len({await text(page) for page in pages}) == 1

    await eventually(same)
    return await text(pages[0])


async def their_caret(page: Page, before: str, after: str) -> None:
    """Until the caret of the one other stands between these two in its paragraph."""
    found: object = None

    async def there() -> bool:
        nonlocal found
        found = await editor(page).evaluate(BESIDE_CARET)
        return found == [before, after]

    try:
        await eventually(there)
    except TimeoutError:
        pytest.fail(f"the caret stands at {found}, not at {[before, after]}")


async def to_the_end(page: Page) -> None:
    await editor(page).click()
    await page.keyboard.press("Control+End")


async def type_words(page: Page, name: str, count: int, *, here: bool = False) -> list[str]:
    """Type at the end, or where the caret is; the words."""
    words = [f"{name}{number}" for number in range(count)]
    if not here:
        await to_the_end(page)
    await page.keyboard.type(" ".join(["", *words]), delay=10)
    return words


async def test_two_who_type_at_once_see_the_same(browser: Browser, place: Stack) -> None:
    """Both texts arrive whole, the mark shows saved, and each user sees the other's name and cursor."""
    ana, ben = [await opened(browser, place, "together") for _ in range(2)]
    await to_the_end(ana.page)
    await to_the_end(ben.page)  # at one place, before either types
    mine, yours = await asyncio.gather(
        type_words(ana.page, "ana", 15, here=True), type_words(ben.page, "ben", 15, here=True)
    )
    for page in (ana.page, ben.page):
        await state(page, "saved")
        await expect(page.locator("#others [data-testid=person]")).to_have_count(1)
        await expect(page.locator("[data-testid=their-caret]")).to_be_attached()
    shown = await same_text(ana.page, ben.page)
    for word in mine + yours:
        assert word in shown
    fresh = await opened(browser, place, "together")
    assert await same_text(fresh.page, ana.page) == shown
    for visitor in (ana, ben, fresh):
        assert (visitor.errors, visitor.foreign) == ([], [])


@pytest.mark.deep
async def test_the_caret_of_another_stands_behind_what_they_type(browser: Browser, place: Stack) -> None:
    """The caret is right in the first paragraph of a new document, and in a list item that was emptied and
    typed again.
    """
    ana, ben = [await opened(browser, place, "carets") for _ in range(2)]
    keys = ana.page.keyboard
    await editor(ana.page).click()
    await their_caret(ben.page, "", "")
    await keys.type("hello", delay=10)
    await their_caret(ben.page, "hello", "")
    await keys.press("Enter")
    await keys.type("- item", delay=10)
    await their_caret(ben.page, "item", "")
    await keys.press("Shift+Home")
    await expect(ben.page.locator(".their-selection")).to_have_text("item")
    await keys.press("Backspace")
    await their_caret(ben.page, "", "")
    await editor(ben.page).click()
    await ben.page.keyboard.press("Control+Home")
    await ben.page.keyboard.type("Oh, ", delay=10)
    await their_caret(ana.page, "Oh, ", "hello")
    await keys.type("again", delay=10)
    await their_caret(ben.page, "again", "")
    assert await same_text(ana.page, ben.page) == "Oh, hello\nagain"
    assert (ana.errors, ben.errors) == ([], [])


@pytest.mark.deep
async def test_an_empty_code_block_takes_keys_beside_another(browser: Browser, place: Stack) -> None:
    """The text of both users is kept, in the lines in which they typed it."""
    ana, ben = [await opened(browser, place, "listing") for _ in range(2)]
    keys = ana.page.keyboard
    await editor(ana.page).click()
    await keys.press("Control+Alt+c")
    await keys.press("Control+Enter")
    await keys.type("is code", delay=10)
    await expect(editor(ben.page).locator("pre")).to_have_count(1)
    await editor(ben.page).locator("pre").click()
    await expect(editor(ana.page).locator("pre [data-testid=their-caret]")).to_have_count(1)
    await keys.press("ArrowUp")
    await keys.type("a\nx = 1\n\n  y = 2", delay=20)
    await state(ana.page, "saved")
    assert await same_text(ana.page, ben.page) == "a\nx = 1\n\n  y = 2\nis code"
    await ben.page.keyboard.type("456", delay=10)
    await state(ben.page, "saved")
    shown = await same_text(ana.page, ben.page)
    assert "a\nx = 1\n\n  y = 2" in shown and "456" in shown
    assert (ana.errors, ben.errors) == ([], [])


async def test_who_looks_writes_nothing(browser: Browser, place: Stack) -> None:
    """Not at the first look, nor at a reload or after a broken connection; the first edit writes."""
    async with httpx.AsyncClient(base_url=place.web) as http:
        patch = [{"op": "add", "path": "/body", "value": {"title": "made by curl"}}]
        made = (await http.patch("/v1/documents/elsewhere", json=patch)).headers["etag"]

        async def etag() -> str:
            return (await http.get("/v1/documents/elsewhere")).headers["etag"]

        ana = await opened(browser, place, "elsewhere")
        await expect(editor(ana.page)).to_be_visible()
        await ana.page.reload()
        await state(ana.page, "saved")
        await expect(editor(ana.page)).to_be_visible()
        await ana.context.set_offline(True)
        await state(ana.page, "offline")
        await ana.context.set_offline(False)
        await state(ana.page, "saved")
        await expect(ana.page.locator("#other-roots")).to_contain_text("also holds: body.")
        assert await etag() == made
        assert len((await http.get("/v1/documents/elsewhere/history")).json()["versions"]) == 1
        await type_words(ana.page, "mine", 1)
        await state(ana.page, "saved")
        assert await etag() != made
        written = (await http.get("/v1/documents/elsewhere")).json()
        assert written["body"] == {"title": "made by curl"} and "mine0" in str(written["doc"])
    assert ana.errors == []


@pytest.mark.deep
async def test_a_new_document_is_made_with_its_first_edit(browser: Browser, place: Stack) -> None:
    """Before it the page has no address to share, and does not ask to share it."""
    async with httpx.AsyncClient(base_url=place.web) as http:
        ana = await visit(browser, place.web)
        await state(ana.page, "new")
        await expect(editor(ana.page)).to_be_visible()
        assert (await http.get("/v1/documents")).json()["documents"] == []
        await expect(ana.page.locator("#invite")).to_contain_text(
            "The first letter gives this document its address"
        )
        await type_words(ana.page, "first", 3)
        await state(ana.page, "saved")
        async with asyncio.timeout(10):
            while not (listed := (await http.get("/v1/documents")).json()["documents"]):  # noqa: ASYNC110
                await asyncio.sleep(0.2)  # a list of all may be a second old
    assert [f"{place.web}/d/{one['document']}" for one in listed] == [ana.page.url]
    ben = await visit(browser, ana.page.url)
    await state(ben.page, "saved")
    assert "first2" in await same_text(ana.page, ben.page)
    await expect(ana.page.locator("#invite")).to_contain_text("Open this address in a second window")


@pytest.mark.deep
async def test_a_gateway_that_only_reads_has_a_page_that_only_reads(browser: Browser, place: Stack) -> None:
    """The page shows "Read only" and the text, and has no tools; it does not open a document that does not
    exist.
    """
    ana = await opened(browser, place, "printed")
    await type_words(ana.page, "ink", 2)
    await state(ana.page, "saved")
    await ana.context.close()
    place.gateway.kill()
    place.gate("--read-only")
    ben = await opened(browser, place, "printed")
    await expect(ben.page.locator("#state")).to_have_text("Read only")
    await expect(editor(ben.page)).to_have_attribute("contenteditable", "false")
    await expect(editor(ben.page)).to_contain_text("ink1")
    await expect(ben.page.locator("#toolbar")).to_be_hidden()
    lost = await visit(browser, f"{place.web}/d/no-such-document")
    await expect(lost.page.locator("#banner")).to_contain_text("This document does not exist")
    await expect(lost.page.locator("#opening")).to_be_hidden()


@pytest.mark.deep
async def test_a_deleted_document_says_what_is_left_of_it(browser: Browser, place: Stack) -> None:
    """A reader keeps the copy of the browser; who comes later finds nothing, and waits for nothing."""
    ana = await opened(browser, place, "secret")
    await type_words(ana.page, "word", 2)
    await state(ana.page, "saved")
    async with httpx.AsyncClient(base_url=place.web, timeout=30) as http:
        assert (await http.delete("/v1/documents/secret?purge=true")).status_code == 200
    await state(ana.page, "problem")
    await expect(ana.page.locator("#banner")).to_contain_text("copy of this browser")
    await expect(editor(ana.page)).to_have_attribute("contenteditable", "false")
    ben = await visit(browser, f"{place.web}/d/secret")
    await expect(ben.page.locator("#banner")).to_contain_text("This browser has no copy of it")
    for page in (ana.page, ben.page):
        await expect(page.locator("#opening")).to_be_hidden()
        await expect(page.locator("#toolbar")).to_be_hidden()


async def test_what_is_typed_offline_arrives_later(browser: Browser, place: Stack) -> None:
    """The mark shows offline, edits continue, and after the reconnect every page has every edit."""
    ana, ben = [await opened(browser, place, "train") for _ in range(2)]
    await expect(ana.page.locator("#others [data-testid=person]")).to_have_count(1)
    await ana.context.set_offline(True)
    await state(ana.page, "offline")
    await expect(ana.page.locator("body.away #others [data-testid=person]")).to_have_count(1)
    alone, online = await asyncio.gather(type_words(ana.page, "tunnel", 10), type_words(ben.page, "desk", 10))
    await state(ana.page, "offline")
    await expect(ana.page.locator("#state")).to_have_text("Offline · edits waiting")
    await state(ben.page, "saved")
    assert alone[0] not in await text(ben.page)
    await ana.context.set_offline(False)
    await state(ana.page, "saved")
    shown = await same_text(ana.page, ben.page)
    for word in alone + online:
        assert word in shown


async def test_offline_edits_survive_a_reload(browser: Browser, place: Stack) -> None:
    """They are in the browser's own store until a server has them."""
    ana = await opened(browser, place, "reload")
    await type_words(ana.page, "kept", 3)
    await state(ana.page, "saved")
    place.gateway.kill()
    await state(ana.page, "offline")
    words = await type_words(ana.page, "lonely", 5)
    await expect(ana.page.locator("#state")).to_have_attribute("data-kept", "yes")
    place.gate()
    await ana.page.reload()
    await state(ana.page, "saved")
    ben = await opened(browser, place, "reload")
    shown = await same_text(ana.page, ben.page)
    for word in words:
        assert word in shown


async def test_a_killed_server_costs_nothing(browser: Browser, place: Stack) -> None:
    """The mark goes offline, what is typed meanwhile waits, and with the next server it is saved."""
    ana, ben = [await opened(browser, place, "crash") for _ in range(2)]
    before = await type_words(ana.page, "before", 5)
    await state(ana.page, "saved")
    place.serve_killed()
    await state(ana.page, "offline")
    await state(ben.page, "offline")
    during = await type_words(ben.page, "during", 5)
    await state(ben.page, "offline")
    place.serve(1)
    await state(ben.page, "saved")
    await state(ana.page, "saved")
    after = await type_words(ana.page, "after", 5)
    await state(ana.page, "saved")
    fresh = await opened(browser, place, "crash")
    shown = await same_text(ana.page, ben.page, fresh.page)
    for word in before + during + after:
        assert word in shown


async def test_the_slider_shows_the_past_and_restores_it(browser: Browser, place: Stack) -> None:
    ana, ben = [await opened(browser, place, "past") for _ in range(2)]
    await type_words(ana.page, "first", 1)
    await state(ana.page, "saved")
    await same_text(ana.page, ben.page)
    await asyncio.sleep(1.1)  # Loro dates changes by the second
    await type_words(ben.page, "second", 3)
    await state(ben.page, "saved")
    late = await same_text(ana.page, ben.page)

    await ana.page.locator("#history-toggle").click()
    slider = ana.page.locator("#history-slider")
    await slider.focus()
    await slider.press("Home")
    past = ana.page.locator("#history-view")
    await expect(past).not_to_contain_text("second2")
    for _ in range(200):
        if "first0" in await past.inner_text():
            break
        await slider.press("ArrowRight")
        await asyncio.sleep(0.1)  # the picture comes behind the slider: another step would go too far
    early = (await past.inner_text()).strip()
    assert "first0" in early and "second2" not in early
    assert await text(ben.page) == late, "the view of the past changes nothing for others"

    await ana.page.locator("#history-restore").click()
    await expect(editor(ben.page)).not_to_contain_text("second2")
    await state(ana.page, "saved")
    assert await same_text(ana.page, ben.page) == early


@pytest.mark.deep
async def test_the_dashboard_shows_a_takeover(browser: Browser, place: Stack) -> None:
    """The document, its owner, and that another server has it after the first was killed."""
    ana = await opened(browser, place, "moving")
    await type_words(ana.page, "x", 2)
    await state(ana.page, "saved")
    operator = await visit(browser, f"{place.web}/dashboard")
    await expect(operator.page.locator("#takeovers")).not_to_contain_text("moving")
    await expect(operator.page.get_by_test_id("count-UP")).to_have_text("1")
    track, filled = await operator.page.locator(".shares").evaluate(BAR)
    assert track == filled > 0, "states without documents take no part of the bar"
    place.serve(1)
    place.serve_killed()
    await type_words(ana.page, "y", 2)
    await state(ana.page, "saved")
    await expect(operator.page.locator("#takeovers")).to_contain_text("moving")
    await operator.page.goto(f"{place.web}/dashboard#/documents")
    await expect(operator.page.locator("#documents")).to_contain_text("moving")
    assert (operator.errors, operator.foreign) == ([], [])


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.deep)])
async def test_both_pages_fit_a_phone(browser: Browser, place: Stack, scheme: str) -> None:
    """360 pixels wide, nothing sticks out, in both colour schemes."""
    for path in ("/d/phone", "/dashboard", "/dashboard#/documents", "/dashboard#/servers"):
        visitor = await visit(
            browser, place.web + path, viewport={"width": 360, "height": 740}, color_scheme=scheme
        )
        await visitor.page.wait_for_load_state("networkidle" if "/d/" in path else "load")
        await visitor.page.locator("main").wait_for()
        width = await visitor.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, path
        await visitor.context.close()

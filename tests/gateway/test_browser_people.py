"""Presence in the editor: names, selections and carets of other people, on a desktop and on a phone."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.gateway.browsers import Visitor, chromium, visit
from tests.gateway.stacks import Stack, stack

PHONE = {"width": 390, "height": 844}
OTTER = "localStorage.setItem('lorogo.name.given', 'Otter')"
LINES = """editor => {
  const block = editor.querySelector("[data-testid=their-caret]").closest("p");
  const text = new Range();
  text.selectNodeContents(block.firstChild);
  const rows = [...new Set([...text.getClientRects()].map(({ bottom }) => bottom))].sort((a, b) => a - b);
  const label = editor.querySelector(".their-name").getBoundingClientRect();
  const caret = editor.querySelector("[data-testid=their-caret]").getBoundingClientRect();
  return { above: rows.filter(bottom => bottom < caret.top + caret.height / 2).at(-1), top: label.top };
}"""
WORDS = """button => {
  const words = document.createElement("span");
  words.textContent = button.textContent;
  const style = getComputedStyle(button);
  words.style.font = style.font;
  words.style.whiteSpace = "pre";
  words.style.position = "absolute";
  document.body.append(words);
  const range = new Range();
  range.selectNodeContents(button);
  const widths = [range.getBoundingClientRect().width, words.getBoundingClientRect().width];
  words.remove();
  return widths;
}"""
BOX = """element => { const { top, bottom, left, right } = element.getBoundingClientRect();
  return [top, bottom, left, right]; }"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.nats,
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with stack(tmp_path_factory.mktemp("stack")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


def editor(page: Page) -> Locator:
    return page.locator("#editor")


async def opened(browser: Browser, stack: Stack, document: str, **options: object) -> Visitor:
    visitor = await visit(browser, f"{stack.web}/d/{document}", **options)
    await expect(visitor.page.locator("#state")).to_have_attribute("data-state", "saved")
    return visitor


async def written(visitor: Visitor, *lines: str) -> None:
    await editor(visitor.page).click()
    for line in lines:
        await visitor.page.keyboard.type(line)
        await visitor.page.keyboard.press("Enter")
    await expect(visitor.page.locator("#state")).to_have_attribute("data-state", "saved")


async def test_a_selection_of_everything_is_seen_by_others(browser: Browser, place: Stack) -> None:
    """After Ctrl+A others see the selection from the first letter to the last, and the caret at its end."""
    ana, ben = [await opened(browser, place, "everything") for _ in range(2)]
    await written(ana, "# Plan", "first", "---", "last")
    await ana.page.keyboard.press("Control+a")
    selected = ben.page.locator(".their-selection")
    await expect(selected).to_have_text(["Plan", "first", "last"])
    await expect(ben.page.locator("[data-testid=their-caret]")).to_have_count(1)
    await ana.page.keyboard.press("Control+Home")
    await expect(selected).to_have_count(0)
    await expect(ben.page.locator("h1 [data-testid=their-caret]")).to_have_count(1)
    assert (ana.errors, ben.errors) == ([], [])


async def test_two_people_have_two_names(browser: Browser, place: Stack) -> None:
    """Of two with one given name the later takes another, in page and history; a chosen name stays."""
    ana, ben = [await opened(browser, place, "names") for _ in range(2)]
    for visitor in (ana, ben):
        await visitor.context.add_init_script(OTTER)
        await visitor.page.reload()
        await expect(visitor.page.locator("#state")).to_have_attribute("data-state", "saved")
    own = ben.page.locator("#own-name")
    await expect(ana.page.locator("#own-name")).to_have_value("Otter")
    await expect(own).to_have_value("Owl")
    await expect(ana.page.locator("#others [data-testid=person]")).to_have_attribute("data-name", "Owl")
    await written(ben, "by whom?")
    await ben.page.locator("#history-toggle").click()
    await expect(ben.page.locator("#history-who")).to_have_text("by Owl")
    await ben.page.locator("#history-close").click()
    await own.fill("Otter")
    await own.press("Enter")
    await expect(ana.page.locator("#own-name")).to_have_value("Owl")
    await expect(own).to_have_value("Otter")


async def test_the_name_at_a_caret_leaves_the_line_above_readable(browser: Browser, place: Stack) -> None:
    """On a phone the label fits between the line of the caret and the one above."""
    ana = await opened(browser, place, "label")
    ben = await opened(browser, place, "label", viewport=PHONE)
    await written(ana, "Everything that we need before Thursday, in one place, and who does it until then.")
    await ana.page.keyboard.press("Backspace")
    await expect(editor(ben.page).locator("p [data-testid=their-caret]")).to_have_count(1)
    rows = await editor(ben.page).evaluate(LINES)
    assert rows["top"] >= rows["above"] - 1


async def test_the_words_of_restore_have_one_space(browser: Browser, place: Stack) -> None:
    """On a wide screen the button reads "Restore this version" and is as wide as these words."""
    ana = await opened(browser, place, "restore")
    await written(ana, "one line")
    await ana.page.locator("#history-toggle").click()
    wide, narrow = await ana.page.locator("#history-restore").evaluate(WORDS)
    assert wide == pytest.approx(narrow, abs=1)


async def test_the_history_of_a_phone_has_one_row_and_keeps_its_height(
    browser: Browser, place: Stack
) -> None:
    """Which version it is stands beside the buttons; nothing below moves while the slider does."""
    ana = await opened(browser, place, "header", viewport=PHONE)
    await written(ana, "one line of text", "and another one, by the same hand")
    await ana.page.locator("#history-toggle").click()
    words, restore = ana.page.locator("#history p"), ana.page.locator("#history-restore")
    slider = ana.page.locator("#history-slider")
    heights = set()
    for key in ("End", "ArrowLeft", "Home"):
        await slider.press(key)
        await expect(restore).to_be_disabled() if key == "End" else await expect(restore).to_be_enabled()
        top, bottom, _, right = await words.evaluate(BOX)
        button = await restore.evaluate(BOX)
        assert button[0] < bottom and top < button[1] and right <= button[2], "beside each other"
        assert await words.evaluate("it => it.scrollWidth <= it.clientWidth"), "nothing is cut off"
        heights.add((await slider.evaluate(BOX))[0])
    assert len(heights) == 1

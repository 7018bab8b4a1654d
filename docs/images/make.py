"""The pictures of the README: two people in one document, and the dashboard while they type.

python docs/images/make.py        needs Chromium, and pages that are built (`make pages`)
"""

import asyncio
import base64
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.gateway.browsers import chromium, visit  # noqa: E402 - the path comes first
from tests.gateway.stacks import Stack, stack  # noqa: E402

WINDOW = {"width": 780, "height": 640}
DOCUMENT = "launch-plan"
PLAN = [
    ("# Launch plan", "Enter"),
    ("Everything we need before Thursday, in one place.", "Enter"),
    ("## To do", "Enter"),
    ("- Write the announcement", "Enter"),
    ("Ask Ben for the figures", "Enter"),
    ("Book the room", "Enter"),
]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with stack(Path(folder)) as place, chromium() as browser:
            place.serve(1)
            others = [asyncio.create_task(_busy(browser, place, number)) for number in range(3)]
            await _take(browser, place)
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)


async def _take(browser: Browser, place: Stack) -> None:
    operator = await visit(
        browser, f"{place.web}/dashboard", viewport={"width": 1280, "height": 860}, color_scheme="dark"
    )
    ana = await _person(browser, place, "Ana", "light")
    await _type(ana, PLAN)
    ben = await _person(browser, place, "Ben", "light")
    await ben.locator("#editor").click()
    await ben.keyboard.press("Control+End")
    await ben.keyboard.press("ArrowUp")
    await ben.keyboard.press("End")
    for _ in range(60):  # while the charts fill
        await ana.locator("#editor").press("Control+End")
        await ana.keyboard.type("The room is booked. ", delay=40)
        for _ in range(20):
            await ana.keyboard.press("Backspace")
    await ana.keyboard.type("Send it out on ", delay=30)
    await ben.keyboard.type(", with the chart", delay=30)
    await asyncio.gather(_saved(ana), _saved(ben))
    await _side_by_side(browser, [await ana.screenshot(), await ben.screenshot()], HERE / "editor.png")
    await operator.page.screenshot(path=HERE / "dashboard.png")
    await operator.page.set_viewport_size({"width": 390, "height": 844})
    await operator.page.screenshot(path=HERE / "dashboard-phone.png")
    await ana.locator("#history-toggle").click()
    slider = ana.locator("#history-slider")
    await slider.focus()
    for _ in range(12):
        await slider.press("ArrowLeft")
    await ana.screenshot(path=HERE / "history.png")


async def _person(browser: Browser, place: Stack, name: str, scheme: str) -> Page:
    visitor = await visit(browser, f"{place.web}/d/{DOCUMENT}", viewport=WINDOW, color_scheme=scheme)
    await _saved(visitor.page)
    await visitor.page.locator("#own-name").fill(name)
    await visitor.page.keyboard.press("Enter")
    return visitor.page


async def _busy(browser: Browser, place: Stack, number: int) -> None:
    """Edit another document, so that the charts have data."""
    visitor = await visit(browser, f"{place.web}/d/notes-{number}")
    await _saved(visitor.page)
    await visitor.page.locator("#editor").click()
    while True:
        await visitor.page.keyboard.type(
            "Notes of the day, and what follows from them. ", delay=60 + 40 * number
        )
        await visitor.page.keyboard.press("Enter")


async def _type(page: Page, lines: list[tuple[str, str]]) -> None:
    await page.locator("#editor").click()
    for text, key in lines:
        await page.keyboard.type(text, delay=8)
        await page.keyboard.press(key)


async def _saved(page: Page) -> None:
    await page.locator("#state[data-state=saved]").wait_for(timeout=30_000)


async def _side_by_side(browser: Browser, pictures: list[bytes], path: Path) -> None:
    shown = "".join(
        f'<img src="data:image/png;base64,{base64.b64encode(picture).decode()}">' for picture in pictures
    )
    page = await browser.new_page(
        viewport={"width": 2 * WINDOW["width"] + 48, "height": WINDOW["height"] + 32}
    )
    style = "body{margin:0;padding:16px;display:flex;gap:16px;background:#c9ced6}img{border-radius:8px}"
    await page.set_content(f"<style>{style}</style>{shown}")
    await page.screenshot(path=path)


if __name__ == "__main__":
    asyncio.run(main())

"""A real Chromium, driven by Playwright: Debian's, or any other that is on the machine."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
SECONDS = 30.0


def found() -> str | None:
    """The path of an installed browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser; skips the test where there is none."""
    path = found()
    if path is None:
        pytest.skip("no Chromium on this machine: `make browser` installs Debian's if it may")
    expect.set_options(timeout=SECONDS * 1000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """A user with a separate browser window, which records its errors."""

    def __init__(self, context: BrowserContext, page: Page, home: str) -> None:
        self.context = context
        self.page = page
        self.foreign: list[str] = []  # requested addresses that are not the gateway's
        self.errors: list[str] = []
        page.on("request", lambda request: self._asked(request.url, home))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._said)

    def _asked(self, url: str, home: str) -> None:
        if not url.startswith((home, "data:", "blob:")):
            self.foreign.append(url)

    def _said(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.errors.append(message.text)


async def visit(browser: Browser, address: str, **options: object) -> Visitor:
    """A window of its own on that address."""
    home = "/".join(address.split("/")[:3])
    context = await browser.new_context(**options)  # type: ignore[arg-type] # Playwright's own names
    visitor = Visitor(context, await context.new_page(), home)
    await visitor.page.goto(address)
    return visitor

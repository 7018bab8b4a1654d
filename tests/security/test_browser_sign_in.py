"""People with browsers and tokens: signing in by form and by link, being sent away; in a real Chromium."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from lorogo_gateway.identity import COOKIE
from tests.gateway.browsers import chromium, visit
from tests.security.closed_gateway import closed
from tests.security.people import mint

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


async def state(page: Page, word: str) -> None:
    await expect(page.locator("#state")).to_have_attribute("data-state", word)


async def sign_in(page: Page, token: str) -> None:
    await page.get_by_label("Paste a token").fill(token)
    await page.get_by_role("button", name="Sign in").click()


async def test_a_document_asks_for_a_token_and_opens_with_it(browser: Browser) -> None:
    """A small form; a bad token is told, a good one opens the document, and no script can read it."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan")
        page = visitor.page
        await expect(page.locator("#banner")).to_contain_text("needs a token")
        await sign_in(page, "garbage")
        await expect(page.get_by_test_id("token-problem")).to_contain_text("not a JWT")
        await sign_in(page, mint({"plan": "write"}, token_id="plans"))
        await state(page, "saved")
        await expect(page.locator("#banner")).to_be_hidden()
        await page.locator("#editor").click()
        await page.keyboard.type("hello")
        await state(page, "saved")
        kept = await visitor.context.cookies()
        assert [(one["name"], one["httpOnly"], one["sameSite"]) for one in kept] == [(COOKIE, True, "Strict")]
        assert await page.evaluate("document.cookie") == ""
        # and when it is revoked, the page says so and keeps what was written
        await gate.authority.revoke_token("plans")
        await expect(page.locator("#banner")).to_contain_text("revoked")
        await expect(page.locator("#editor")).to_contain_text("hello")
        await sign_in(page, mint({"plan": "write"}))
        await state(page, "saved")
        assert not visitor.errors
        assert not visitor.strangers


async def test_a_link_with_a_token_signs_in_and_is_cleaned(browser: Browser) -> None:
    """The token is taken out of the address, is asked of nobody in one, and is in no history entry."""
    async with closed() as gate:
        await gate.write("plan")
        token = mint({"plan": "read"})
        visitor = await visit(browser, "about:blank")
        asked: list[str] = []
        visitor.page.on("request", lambda request: asked.append(request.url))
        await visitor.page.goto(f"{gate.address}/d/plan#token={token}")
        await state(visitor.page, "saved")
        assert visitor.page.url == f"{gate.address}/d/plan"
        assert not [url for url in asked if token in url.partition("#")[0]]
        await expect(visitor.page.locator("#state-text")).to_have_text("Read only")
        await visitor.page.reload()
        await state(visitor.page, "saved")


async def test_a_document_that_the_token_does_not_allow_is_told(browser: Browser) -> None:
    """A sentence, and another token may be given."""
    async with closed() as gate:
        await gate.write("secret")
        visitor = await visit(browser, f"{gate.address}/d/secret#token={mint({'plan': 'write'})}")
        banner = visitor.page.locator("#banner")
        await expect(banner).to_have_attribute("data-code", "permission-denied")
        await expect(banner).to_contain_text("You may not open this document")
        await sign_in(visitor.page, mint({"secret": "read"}))
        await state(visitor.page, "saved")


async def test_the_dashboard_is_for_operators(browser: Browser) -> None:
    """401: a form. 403: a sentence and the form. With an operator's token: the overview."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/dashboard")
        panel = visitor.page.get_by_test_id("sign-in-panel")
        await expect(panel).to_contain_text("This page needs a token")
        await sign_in(visitor.page, mint({"plan": "admin"}))
        await expect(panel).to_contain_text("not an operator's")
        await sign_in(visitor.page, mint({"*": "admin"}))
        await expect(panel).to_have_count(0)
        await expect(visitor.page.locator("#main h1")).to_be_visible()
        again = await visitor.context.new_page()
        await again.goto(f"{gate.address}/dashboard#token={mint({'*': 'admin'})}")
        await expect(again.locator("#main h1")).to_be_visible()
        assert "token" not in again.url
        assert not visitor.errors

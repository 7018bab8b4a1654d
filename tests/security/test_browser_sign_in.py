"""People with browsers and tokens: signing in by form and by link, being sent away; in a real Chromium."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Dialog, Page, expect

from lorogo_gateway.auth import COOKIE
from tests.gateway.browsers import chromium, visit
from tests.revoking import list_of
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
    """The form shows the error of a bad token; a good one opens the document, and no script can read the
    token.
    """
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
        # once the token is revoked, the page shows that and keeps the text
        await list_of(gate.authority).revoke_token("plans")
        await expect(page.locator("#banner")).to_contain_text("revoked")
        await expect(page.locator("#editor")).to_contain_text("hello")
        await sign_in(page, mint({"plan": "write"}))
        await state(page, "saved")
        assert not visitor.errors
        assert not visitor.foreign


def ana() -> str:
    """A token of hers."""
    return mint({"plan": "write"}, subject="ana")


async def typed(page: Page, text: str) -> None:
    """At the end of the document, and kept in this browser."""
    await page.locator("#editor").click()
    await page.keyboard.press("Control+End")
    await page.keyboard.type(text)
    await expect(page.locator("#state")).to_have_attribute("data-kept", "yes")


async def sign_out(page: Page) -> None:
    await page.get_by_test_id("sign-out").click()
    await expect(page.get_by_label("Paste a token")).to_be_visible()


async def test_no_user_sees_the_text_of_the_previous_one(browser: Browser) -> None:
    """Signed out or signed in as another user, the page hides the text; its writer gets it back, with unsaved
    edits.
    """
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan#token={ana()}")
        page = visitor.page
        await state(page, "saved")
        await expect(page.get_by_test_id("signed-in")).to_contain_text("ana")
        await typed(page, "SECRET")
        await state(page, "saved")
        await visitor.context.set_offline(True)
        await state(page, "offline")
        await typed(page, " UNSAVED")
        await visitor.context.clear_cookies()
        await visitor.context.set_offline(False)
        await page.reload()
        await expect(page.locator("#banner")).to_contain_text("needs a token")
        assert "SECRET" not in await page.locator("body").inner_text()
        await sign_in(page, mint({"other": "write"}, subject="ben"))
        await expect(page.locator("#banner")).to_have_attribute("data-code", "permission-denied")
        assert "SECRET" not in await page.locator("body").inner_text()
        assert "Bearer" not in await page.locator("body").inner_text()
        # and one who may write there sends nothing of it
        await sign_in(page, mint({"plan": "write"}, subject="cara"))
        await state(page, "saved")
        await typed(page, " CARA")
        await state(page, "saved")
        await sign_out(page)
        await expect(page.locator("#editor")).to_have_count(0)
        assert "UNSAVED" not in str(await gate.read("plan"))
        await sign_in(page, ana())
        await state(page, "saved")
        await expect(page.locator("#editor")).to_contain_text("UNSAVED")
        await expect(page.locator("#editor")).to_contain_text("CARA")
        assert "UNSAVED" in str(await gate.read("plan"))
        assert not visitor.errors


async def test_a_window_that_returns_as_another_user_sends_nothing(browser: Browser) -> None:
    """The cookie changed while it was away: its edits wait for their writer."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan#token={ana()}")
        page = visitor.page
        await state(page, "saved")
        await typed(page, "SECRET")
        await state(page, "saved")
        await visitor.context.set_offline(True)
        await state(page, "offline")
        await typed(page, " UNSAVED")
        other = mint({"plan": "write"}, subject="ben")
        await visitor.context.add_cookies([{"name": COOKIE, "value": other, "url": gate.address}])
        await visitor.context.set_offline(False)
        await expect(page.get_by_test_id("signed-in")).to_contain_text("ben")
        await state(page, "saved")
        await expect(page.locator("#editor")).to_contain_text("SECRET")
        assert "UNSAVED" not in str(await gate.read("plan"))
        assert "UNSAVED" not in await page.locator("body").inner_text()


@pytest.mark.deep
async def test_a_window_follows_who_signs_in_elsewhere(browser: Browser) -> None:
    """Signing out in one window takes the document out of all of them."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan#token={ana()}")
        await state(visitor.page, "saved")
        await typed(visitor.page, "SECRET")
        second = await visitor.context.new_page()
        await second.goto(f"{gate.address}/dashboard")
        await expect(second.get_by_test_id("signed-in")).to_contain_text("ana")
        await sign_out(second)
        await expect(visitor.page.locator("#banner")).to_contain_text("needs a token")
        await expect(visitor.page.locator("#editor")).to_have_count(0)


async def test_a_document_that_is_denied_in_the_middle_is_gone(browser: Browser) -> None:
    """A token that grants less takes what was seen out of sight."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan#token={ana()}")
        page = visitor.page
        await state(page, "saved")
        await typed(page, "SECRET")
        less = mint({"other": "read"}, subject="ana")
        await page.evaluate("token => { location.hash = `token=${token}` }", less)
        await expect(page.locator("#banner")).to_have_attribute("data-code", "permission-denied")
        await expect(page.locator("#editor")).to_have_count(0)
        await page.reload()
        await expect(page.locator("#banner")).to_have_attribute("data-code", "permission-denied")
        await expect(page.locator("#editor")).to_have_count(0)


@pytest.mark.deep
async def test_a_link_prompts_before_it_replaces_a_session(browser: Browser) -> None:
    """A user who declines stays signed in; a bad token in a link is an error, and one in the query is
    ignored.
    """
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/d/plan#token={ana()}")
        page = visitor.page
        await state(page, "saved")
        asked: list[str] = []

        async def refuse(dialog: Dialog) -> None:
            asked.append(dialog.message)
            await dialog.dismiss()

        page.on("dialog", refuse)
        await page.goto("about:blank")
        await page.goto(f"{gate.address}/d/plan#token={mint({'plan': 'read'}, subject='mallory')}")
        await state(page, "saved")
        assert asked == ["Open as mallory instead of ana?"]
        await expect(page.get_by_test_id("signed-in")).to_contain_text("ana")
        await sign_out(page)
        await page.goto("about:blank")
        await page.goto(f"{gate.address}/d/plan#token={mint({'plan': 'write'}, seconds=-3600.0)}")
        await expect(page.locator("#banner")).to_contain_text("expired")
        await page.goto(f"{gate.address}/d/plan?token=x.y.z")
        await expect(page.locator("#banner")).to_contain_text("was ignored")
        assert page.url == f"{gate.address}/d/plan"


@pytest.mark.deep
async def test_the_first_page_offers_what_the_token_names(browser: Browser) -> None:
    """No editor for a document that it does not allow."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/#token={ana()}")
        page = visitor.page
        await expect(page.get_by_test_id("offered")).to_have_text(["plan"])
        await expect(page.locator("#editor")).to_have_count(0)
        await page.get_by_test_id("offered").click()
        await state(page, "saved")


async def test_a_link_with_a_token_signs_in_and_is_cleaned(browser: Browser) -> None:
    """The page removes the token from the address; no request and no history entry has it."""
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


@pytest.mark.deep
async def test_a_document_that_the_token_does_not_allow_is_refused(browser: Browser) -> None:
    """A sentence, and another token may be given."""
    async with closed() as gate:
        await gate.write("secret")
        visitor = await visit(browser, f"{gate.address}/d/secret#token={mint({'plan': 'write'})}")
        banner = visitor.page.locator("#banner")
        await expect(banner).to_have_attribute("data-code", "permission-denied")
        await expect(banner).to_contain_text("You may not open this document")
        await sign_in(visitor.page, mint({"secret": "read"}))
        await state(visitor.page, "saved")


@pytest.mark.deep
async def test_the_dashboard_is_for_operators(browser: Browser) -> None:
    """401: a form. 403: a sentence and the form. With an operator's token: the overview."""
    async with closed() as gate:
        visitor = await visit(browser, f"{gate.address}/dashboard")
        panel = visitor.page.get_by_test_id("sign-in-panel")
        await expect(panel).to_contain_text("This page needs a token")
        await expect(panel).not_to_contain_text("Bearer")
        await expect(visitor.page.get_by_test_id("connection")).to_have_text("no access")
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

"""The pages: served as built, with security headers; without a build, an answer with the command that builds
them.
"""

import gzip
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from lorogo_gateway.server.pages import Pages

SCRIPT = b"console.log(1);" * 100


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>editor</title>")
    (tmp_path / "dashboard.html").write_text("<title>dashboard</title>")
    (tmp_path / "favicon.svg").write_text("<svg/>")
    (tmp_path / "assets" / "index-etOsRz8o.js").write_bytes(SCRIPT)
    (tmp_path / "assets" / "index-etOsRz8o.js.gz").write_bytes(gzip.compress(SCRIPT))
    (tmp_path / "assets" / "secret.key").write_text("not for the web")
    return tmp_path


def browser(folder: Path, encoding: str = "identity", *, read_only: bool = False) -> httpx.AsyncClient:
    app = Starlette(routes=Pages(folder, read_only=read_only).routes())
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://gateway",
        headers={"accept-encoding": encoding},
    )


@pytest.mark.parametrize("path", ["/", "/d/minutes", "/d/a=b-c_1"])
async def test_the_editor_is_at_the_root_and_at_every_document(built: Path, path: str) -> None:
    async with browser(built) as web:
        answer = await web.get(path)
    assert (answer.status_code, answer.text) == (200, "<title>editor</title>")
    assert answer.headers["cache-control"] == "no-cache"


async def test_the_dashboard_has_its_own_page(built: Path) -> None:
    async with browser(built) as web:
        assert (await web.get("/dashboard")).text == "<title>dashboard</title>"
        assert (await web.get("/dashboard/")).headers["location"] == "/dashboard"


@pytest.mark.parametrize(
    "path",
    [
        "/d/-begins-with-a-dash",
        "/d/_kv",
        "/d/with%20blank",
        "/d/" + "x" * 129,
        "/d/a/b",
        "/assets/missing.js",
        "/assets/secret.key",
        "/assets/../index.html",
        "/assets/%2e%2e/%2e%2e/pages.py",
        "/assets//etc/passwd",
        "/index.html",
        "/robots.txt",
    ],
)
async def test_what_is_not_a_page_is_not_there(built: Path, path: str) -> None:
    async with browser(built) as web:
        assert (await web.get(path)).status_code == 404


@pytest.mark.parametrize("path", ["/d/bad%20id", "/d/%3Cscript%3E", "/d/a/b", "/nowhere"])
async def test_an_unknown_page_has_a_reason_and_a_link(built: Path, path: str) -> None:
    """On a page that is not there still; programs get the reason in one line."""
    async with browser(built) as web:
        page = await web.get(path, headers={"accept": "text/html,*/*"})
        line = await web.get(path)
    assert (page.status_code, line.status_code) == (404, 404)
    assert 'href="/"' in page.text and "<script" not in page.text
    assert page.headers["content-security-policy"] and page.headers["content-type"].startswith("text/html")
    assert line.headers["content-type"].startswith("text/plain") and line.text.count("\n") == 1


async def test_a_gateway_that_only_reads_offers_no_new_document(built: Path) -> None:
    async with browser(built, read_only=True) as web:
        root = await web.get("/")
        lost = await web.get("/nowhere", headers={"accept": "text/html"})
        assert (await web.get("/d/minutes")).text == "<title>editor</title>"
    assert root.status_code == 200 and "is read-only" in root.text
    assert 'href="/"' not in root.text + lost.text


async def test_assets_are_kept_for_ever_and_sent_compressed_to_those_who_take_it(built: Path) -> None:
    async with browser(built) as web:
        plain = await web.get("/assets/index-etOsRz8o.js")
    async with browser(built, "gzip, deflate") as web:
        packed = await web.get("/assets/index-etOsRz8o.js")
    assert plain.content == packed.content == SCRIPT
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(SCRIPT)
    for answer in (plain, packed):
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["vary"] == "accept-encoding"


async def test_an_asset_without_a_hash_is_revalidated(built: Path) -> None:
    (built / "assets" / "theme-boot.js").write_text("1;")
    async with browser(built) as web:
        assert (await web.get("/assets/theme-boot.js")).headers["cache-control"] == "no-cache"


async def test_only_our_own_scripts_may_run(built: Path) -> None:
    async with browser(built) as web:
        policy = (await web.get("/")).headers["content-security-policy"]
    assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "http" not in policy and "unsafe-eval'" not in policy.replace("wasm-unsafe-eval'", "")


async def test_without_a_build_the_page_says_how_to_make_one(tmp_path: Path) -> None:
    async with browser(tmp_path / "nothing") as web:
        answer = await web.get("/")
    assert answer.status_code == 200
    assert "make pages" in answer.text and "/v1/documents" in answer.text

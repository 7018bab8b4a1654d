"""The demo editor and the dashboard: static files built by Vite.

Browsers may cache files with a content hash in the name forever; they revalidate all others. A compressed
copy beside a file is sent to clients that accept it. Without a build the rest of the gateway works, and `/`
explains how to build the pages. Errors are a small HTML page with links, or plain text for other clients.
"""

import html
import re
from collections.abc import Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.ids import check_document_id

BUILT = Path(__file__).parents[1] / "built"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED = {"br": ".br", "gzip": ".gz"}  # the better one first

# Only scripts, styles and sockets of this gateway. Loro is WebAssembly; editors set styles on elements.
_POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
}
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+$")  # Vite's names with a content hash
_FOR_EVER = "public, max-age=31536000, immutable"
_ASK_AGAIN = "no-cache"

_SMALL = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · lorogo</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
p {{ overflow-wrap: anywhere }}
code {{ background: #8882; padding: .1rem .3rem; border-radius: .2rem }}
:root {{ color-scheme: light dark }}</style>
<h1>{title}</h1>
{body}
</html>
"""
_ON = '<p><a href="/">New document</a> · <a href="/dashboard">Dashboard</a></p>'
_ON_READING = '<p><a href="/dashboard">Dashboard</a></p>'
_READ_ONLY = """<p>This gateway is read-only, so you cannot create documents here.
Open an existing document at <code>/d/{its id}</code>; the dashboard lists them.</p>
"""
_NOT_BUILT = """<p>The editor and the dashboard are not built. In a clone of the repository,
<code>make pages</code> builds them; a released package includes them.</p>
<p>Everything else works: <code>/v1/documents</code>, <code>/v1/openapi.json</code>, <code>/v1/feed</code>,
<code>/ws</code>, <code>/readyz</code>, <code>/metrics</code>.</p>
"""


class Pages:
    """Serves the files that the build folder has at startup; restart the gateway after a new build."""

    def __init__(self, folder: Path = BUILT, *, read_only: bool = False) -> None:
        self._files = _list(folder)
        self._read_only = read_only

    @property
    def built(self) -> bool:
        return {"index.html", "dashboard.html"} <= self._files.keys()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self._editor),
            Route("/dashboard", self._dashboard),
            Route("/dashboard/", self._redirect),
            Route("/assets/{path:path}", self._asset),
            Route("/d/{document}", self._of_document),
            Route("/{name}", self._loose),
            Route("/{path:path}", self._nowhere),
        ]

    async def _editor(self, request: Request) -> Response:
        if self._read_only and self.built:
            return _small("This gateway is read-only", _READ_ONLY + _ON_READING)
        return self._page(request, "index.html")

    async def _dashboard(self, request: Request) -> Response:
        return self._page(request, "dashboard.html")

    async def _redirect(self, request: Request) -> Response:
        return RedirectResponse("/dashboard")

    async def _of_document(self, request: Request) -> Response:
        try:
            check_document_id(request.path_params["document"])
        except InvalidDocumentId as error:
            return self._missing(request, "Not a document", str(error))
        return self._page(request, "index.html")

    async def _loose(self, request: Request) -> Response:
        """Serve a file at the root, as favicon.svg or robots.txt."""
        name = request.path_params["name"]
        if name not in self._files or name.endswith(".html"):
            return await self._nowhere(request)
        return self._file(request, name, _ASK_AGAIN)

    async def _nowhere(self, request: Request) -> Response:
        return self._missing(request, "Page not found", f"no page at {request.url.path[:200]}")

    def _missing(self, request: Request, title: str, reason: str) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse(f"{reason}\n", 404, headers=_HEADERS)
        on = _ON_READING if self._read_only else _ON
        return _small(title, f"<p>{html.escape(reason[:1].upper() + reason[1:])}.</p>\n{on}", 404)

    async def _asset(self, request: Request) -> Response:
        name = f"assets/{request.path_params['path']}"
        if name not in self._files:
            raise HTTPException(404)
        return self._file(request, name, _FOR_EVER if _HASHED.search(name) else _ASK_AGAIN)

    def _page(self, request: Request, name: str) -> Response:
        if not self.built:
            return _small("lorogo is running", _NOT_BUILT)
        return self._file(request, name, _ASK_AGAIN)

    def _file(self, request: Request, name: str, keep: str) -> Response:
        path = self._files[name]
        headers = {**_HEADERS, "cache-control": keep}
        accepted = request.headers.get("accept-encoding", "")
        for encoding, suffix in _COMPRESSED.items():
            if encoding in accepted and name + suffix in self._files:
                path = self._files[name + suffix]
                headers["content-encoding"] = encoding
                break
        return FileResponse(path, headers=headers, media_type=_TYPES[Path(name).suffix])


def _small(title: str, body: str, status: int = 200) -> HTMLResponse:
    headers = {**_HEADERS, "cache-control": "no-store"}
    return HTMLResponse(_SMALL.format(title=title, body=body), status, headers=headers)


def _list(folder: Path) -> Mapping[str, Path]:
    """Return the files to serve by name; no other file is ever opened."""
    files = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    plain = {name for name in files if Path(name).suffix in _TYPES}
    copies = {name + suffix for name in plain for suffix in _COMPRESSED.values()}
    return {name: path for name, path in files.items() if name in plain | copies}

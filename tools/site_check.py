"""Whether a built site stands alone: `make docs` asks it.

    python tools/site_check.py build/site

Nothing that a browser loads by itself comes from elsewhere (scripts, styles, fonts, pictures, frames),
nothing that it names is missing, and every page is in the navigation of the first one. Links that somebody
must click may lead anywhere. Exit code 1: something is wrong, and is told.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT_PAGE = "docs/index.html"
#: pages that no navigation needs to name: the redirection at the top, and what the search box opens
APART = {"index.html", "search.html", "genindex.html"}
#: what a browser loads when it meets the tag, and in which attribute the address stands
LOADED = {
    "script": ("src",),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
}
#: relations of <link> that load nothing
TELLING = {
    "author",
    "canonical",
    "contents",
    "help",
    "index",
    "license",
    "next",
    "prev",
    "search",
    "top",
    "up",
}
_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", re.IGNORECASE)


class PageParser(HTMLParser):
    """What a page loads, and where its navigation leads."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.navigation: list[str] = []
        self._nav: list[bool] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        for name in LOADED.get(tag, ()):
            if name in found:
                places = found[name].split(",") if name == "srcset" else [found[name]]
                self.loads += [place.split()[0] for place in places if place.strip()]
        if tag == "link" and not set(found.get("rel", "").lower().split()) <= TELLING:
            self.loads.append(found.get("href", ""))
        self.loads += in_style(found.get("style", ""))
        self._style = tag == "style"
        if tag == "div":
            self._nav.append("sidebar-tree" in found.get("class", "").split())
        if tag == "a" and any(self._nav):
            self.navigation.append(found.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "div" and self._nav:
            self._nav.pop()
        if tag == "style":
            self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.loads += in_style(data)


def in_style(text: str) -> list[str]:
    """The addresses that a style names."""
    return [one or other for one, other in _URL.findall(text)]


def problems(site: Path) -> Iterator[str]:
    """Everything that is wrong with the site, in sentences."""
    pages = {path.relative_to(site).as_posix(): _parsed(path) for path in sorted(site.rglob("*.html"))}
    if ROOT_PAGE not in pages:
        yield f"there is no {ROOT_PAGE} in {site}"
        return
    for name, page in pages.items():
        for address in page.loads:
            yield from _loaded(site, name, address)
    for path in sorted(site.rglob("*.css")):
        name = path.relative_to(site).as_posix()
        for address in in_style(path.read_text(encoding="utf-8", errors="replace")):
            yield from _loaded(site, name, address)
    named = {_target(site, ROOT_PAGE, address) for address in pages[ROOT_PAGE].navigation}
    reached = {path.relative_to(site.resolve()).as_posix() for path in named if path is not None}
    for name in sorted(pages.keys() - reached - APART - {ROOT_PAGE}):
        yield f"{name}: no entry of the navigation leads there"


def _parsed(path: Path) -> PageParser:
    page = PageParser()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def _loaded(site: Path, name: str, address: str) -> Iterator[str]:
    parts = urlsplit(address)
    if parts.scheme == "data" or (not parts.path and not parts.netloc and not parts.scheme):
        return
    if parts.scheme or parts.netloc:
        yield f"{name}: loads {address[:100]} from elsewhere"
        return
    path = _target(site, name, address)
    if path is None or not path.is_file():
        yield f"{name}: loads {address[:100]}, which is not there"


def _target(site: Path, name: str, address: str) -> Path | None:
    """The file that an address of a page means; None if it is not of the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    place = unquote(parts.path)
    base = site / place.lstrip("/") if place.startswith("/") else (site / name).parent / place
    path = (base if place else site / name).resolve()
    return path if path.is_relative_to(site.resolve()) else None


def main(arguments: list[str]) -> int:
    """Look at the site, tell what is wrong."""
    if len(arguments) != 1:
        print("usage: python tools/site_check.py SITE", file=sys.stderr)
        return 2
    site = Path(arguments[0])
    found = list(problems(site))
    for one in found:
        print(one)
    if not found:
        pages = len(list(site.rglob("*.html")))
        print(f"{site}: {pages} pages, all in the navigation; nothing is loaded from elsewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

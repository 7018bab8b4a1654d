"""`make docs`: check that the built site is self-contained.

    python tools/site_check.py build/site

A browser loads nothing from other hosts (scripts, styles, fonts, pictures, frames), every loaded file exists,
and every page is in the navigation of the first page. Links to click may lead anywhere. Exit code 1: problems
were found and printed.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT_PAGE = "docs/index.html"
#: pages outside of the navigation: the redirection at the top, and the search results
APART = {"index.html", "search.html", "genindex.html"}
#: tags that load a file, with the attribute of the address
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
    """The files that a page loads, and the links of its navigation."""

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
    """Yield the addresses in a style."""
    return [one or other for one, other in _URL.findall(text)]


def problems(site: Path) -> Iterator[str]:
    """Yield every problem of the site, as a sentence."""
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
        yield f"{name}: it is not in the navigation"


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
        yield f"{name}: loads {address[:100]} from another host"
        return
    path = _target(site, name, address)
    if path is None or not path.is_file():
        yield f"{name}: loads {address[:100]}, which does not exist"


def _target(site: Path, name: str, address: str) -> Path | None:
    """Return the file of an address on a page; None if it is outside of the site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    place = unquote(parts.path)
    base = site / place.lstrip("/") if place.startswith("/") else (site / name).parent / place
    path = (base if place else site / name).resolve()
    return path if path.is_relative_to(site.resolve()) else None


def main(arguments: list[str]) -> int:
    """Check the site and print its problems."""
    if len(arguments) != 1:
        print("usage: python tools/site_check.py SITE", file=sys.stderr)
        return 2
    site = Path(arguments[0])
    found = list(problems(site))
    for one in found:
        print(one)
    if not found:
        pages = len(list(site.rglob("*.html")))
        print(f"{site}: {pages} pages, all in the navigation; no file is loaded from other hosts")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

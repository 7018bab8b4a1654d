"""The site stands alone: what `make docs` asks of it (tools/site_check.py), and of the Markdown itself."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.handbook.markdown import DIRECTIVE, MARK, ROOT, anchors, links, name_of, site_pages
from tools import reference, site_check

PAGES = site_pages()
SHELL = """<html><body><div class="sidebar-tree"><ul>{nav}</ul></div>{body}</body></html>"""


def made(folder: Path, body: str = "", *, nav: str = "one.html", styles: str = "") -> list[str]:
    """The problems of a small site with this content in its first page."""
    pages = folder / "docs"
    pages.mkdir(parents=True)
    entries = "".join(f'<li><a href="{name}">x</a></li>' for name in nav.split())
    (pages / "index.html").write_text(SHELL.format(nav=entries, body=body), encoding="utf-8")
    (pages / "one.html").write_text("<p>one</p>", encoding="utf-8")
    (pages / "there.png").write_bytes(b"")
    (pages / "style.css").write_text(styles, encoding="utf-8")
    return list(site_check.problems(folder))


# ---------------------------------------------------------------------------------------- Markdown


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file, for `make docs` refuses a folder, and where it names a heading, to that."""
    wrong = []
    for line, target in links(page):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.is_relative_to(ROOT) or not path.is_file():
            wrong.append(f"{line}: {target}")
        elif anchor and (path.suffix != ".md" or anchor not in anchors(path)):
            wrong.append(f"{line}: {target} names no heading")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_loads_a_picture_from_elsewhere(page: Path) -> None:
    """The page requests nothing from other hosts while it is read."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"!\[[^\]]*\]\([a-z]+:|<(?:img|script|link|iframe)\b[^>]*(?:https?:)?//", text) == []


def test_the_navigation_names_every_page() -> None:
    """Each page of the site stands in one toctree of docs/index.md, by name or by pattern."""
    index = ROOT / "docs" / "index.md"
    entries = [
        line
        for tree in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", index.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    assert len(entries) == len(set(entries))
    named = {path.resolve() for entry in entries for path in index.parent.glob(f"{entry}.md")}
    missing = {name_of(page) for page in PAGES} - {name_of(path) for path in named} - {"docs/index.md"}
    assert missing == set()
    assert {name_of(path) for path in named} <= {name_of(page) for page in PAGES}


def test_the_first_page_links_every_page() -> None:
    """The table of docs/index.md links each page of docs/ and of the handbook."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for _, target in links(index)}
    pages = {*index.parent.glob("*.md"), *(index.parent / "handbook").glob("*.md")} - {index}
    assert {name_of(page) for page in pages - linked} == set()


def test_the_site_is_made_of_these_pages() -> None:
    """The pages that docs/conf.py includes are the pages of these tests."""
    settings: dict[str, object] = {}
    exec((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), settings)
    patterns = settings["include_patterns"]
    assert isinstance(patterns, list)
    found = {path for pattern in patterns for path in ROOT.glob(pattern.replace("**.md", "**/*.md"))}
    assert {path for path in found if "node_modules" not in path.parts} == set(PAGES)
    assert settings["nitpicky"] is True


def test_the_references_equal_the_code() -> None:
    """`make reference` writes them again."""
    assert reference.main(["--check"]) == 0


def test_anchors_are_made_as_github_makes_them() -> None:
    """Lower case, blanks to hyphens, punctuation gone, a number for the second of a name."""
    found = anchors(ROOT / "docs" / "OPERATIONS.md")
    assert {"statistics-of-a-server", "what-a-server-keeps", "nats-lost-data"} <= found
    assert "natss-files-are-gone" in anchors(ROOT / "docs" / "RECOVERY.md")


def test_marks_and_directives_are_distinguished_from_other_text() -> None:
    """A comment above a block is a mark, `{toctree}` no language."""
    assert MARK.fullmatch("<!-- not run: make x -->\n") is not None
    assert DIRECTIVE.fullmatch("{toctree}") and not DIRECTIVE.fullmatch("python")


# -------------------------------------------------------------------------------- the built site


def test_a_site_that_stands_alone_has_no_problems(tmp_path: Path) -> None:
    """Its own pictures, data in the page, and links that load only after a click."""
    body = (
        '<img src="there.png"><img src="data:image/png;base64,AA"><a href="https://example.org">x</a>'
        '<link rel="stylesheet" href="style.css"><link rel="next" href="https://example.org/">'
        '<svg><use href="#mark"></use></svg>'
    )
    assert made(tmp_path, body, styles="a { background: url(there.png) }") == []


@pytest.mark.parametrize(
    "body",
    [
        '<script src="https://example.org/x.js"></script>',
        '<script src="//example.org/x.js"></script>',
        '<img src="http://example.org/x.png">',
        '<img srcset="there.png 1x, https://example.org/x.png 2x">',
        '<link rel="stylesheet" href="https://example.org/x.css">',
        '<link rel="preconnect" href="https://example.org">',
        '<link rel="icon" href="https://example.org/x.ico">',
        '<iframe src="https://example.org"></iframe>',
        '<p style="background: url(https://example.org/x.png)"></p>',
        "<style>@import 'https://example.org/x.css';</style>",
        "<style>@font-face { src: url('https://example.org/x.woff2') }</style>",
        '<video poster="https://example.org/x.png"></video>',
    ],
)
def test_whatever_is_loaded_from_elsewhere_is_found(body: str, tmp_path: Path) -> None:
    """In each tag and style in which a browser would follow it."""
    (found,) = made(tmp_path, body)
    assert "example.org" in found and "from another host" in found


def test_a_font_that_a_style_fetches_is_found(tmp_path: Path) -> None:
    """Styles are read, too."""
    (found,) = made(tmp_path, styles="@font-face { src: url(https://example.org/x.woff2) }")
    assert found.startswith("docs/style.css: loads https://example.org/x.woff2")


@pytest.mark.parametrize("address", ["missing.png", "/missing.png", "../../out.png"])
def test_what_is_loaded_and_not_there_is_found(address: str, tmp_path: Path) -> None:
    """A picture that was forgotten, or lies outside."""
    (found,) = made(tmp_path / "site", f'<img src="{address}">')
    assert f"loads {address}, which does not exist" in found


def test_a_page_that_no_navigation_names_is_found(tmp_path: Path) -> None:
    """A reader would not find it."""
    assert made(tmp_path, nav="index.html") == ["docs/one.html: it is not in the navigation"]


def test_a_folder_that_is_no_site_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and 2 without a folder."""
    assert site_check.main([str(tmp_path)]) == 1
    assert "there is no docs/index.html" in capsys.readouterr().out
    assert site_check.main([]) == 2

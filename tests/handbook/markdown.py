"""Pages as Markdown has them: code blocks with the mark above each, headings with their anchors, links."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
HANDBOOK = ROOT / "docs" / "handbook"
MARK = re.compile(r"<!--\s*(.+?)\s*-->\s*")
DIRECTIVE = re.compile(r"\{\w+\}")  # of Sphinx, such as {toctree}

_PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block: fenced, or indented by four spaces (then without a language)."""

    page: str
    line: int  # of its first line of code
    language: str
    text: str
    mark: str  # of the comment right above it

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def first_line(self) -> str:
        return self.text.strip("\n").partition("\n")[0].strip()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def site_pages() -> list[Path]:
    """Every page of the site: what docs/conf.py includes, and a test holds to it."""
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    beside = [ROOT / "bench" / "peers" / "README.md", ROOT / "web" / "README.md"]
    return [*top, *beside, *sorted((ROOT / "docs").rglob("*.md")), *sorted(_examples())]


def _examples() -> Iterator[Path]:
    for path in (ROOT / "examples").rglob("*.md"):
        if "node_modules" not in path.parts:
            yield path


def blocks(path: Path) -> list[Block]:
    """The code blocks of a page, in order; directives of Sphinx are none."""
    found: list[Block] = []
    before: Token | None = None
    for token in _PARSER.parse(path.read_text(encoding="utf-8")):
        if token.type in ("fence", "code_block"):
            language = token.info.strip().partition(" ")[0]
            assert token.map is not None
            if not DIRECTIVE.fullmatch(language):
                mark = MARK.fullmatch(before.content) if before and before.type == "html_block" else None
                line = token.map[0] + (2 if token.type == "fence" else 1)
                found.append(Block(name_of(path), line, language, token.content, mark[1] if mark else ""))
        before = token
    return found


def anchors(path: Path) -> set[str]:
    """The anchors of a page, as GitHub and MyST both derive them from headings."""
    found: set[str] = set()
    tokens = _PARSER.parse(path.read_text(encoding="utf-8"))
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(
                child.content for child in inline.children or [] if child.type in ("text", "code_inline")
            )
            plain = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            slug, number = plain, 0
            while slug in found:
                number += 1
                slug = f"{plain}-{number}"
            found.add(slug)
    return found


def links(path: Path) -> list[tuple[int, str]]:
    """Every link and picture, with its line."""
    found: list[tuple[int, str]] = []
    for token in _PARSER.parse(path.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrGet("href" if child.type == "link_open" else "src")
            if child.type in ("link_open", "image") and isinstance(target, str):
                found.append(((token.map or [0])[0] + 1, target))
    return found

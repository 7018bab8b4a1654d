"""The page opens anywhere, loads nothing, tells what is wrong, and is not impressed by any name."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from lorogo_pipeline.report.model import (
    BusyDocument,
    DocumentProblem,
    DocumentTotals,
    LakeSummary,
    LargeDocument,
    Peer,
    Period,
    ReasonCount,
    ReportFacts,
    ReportTotals,
)
from lorogo_pipeline.report.page import render
from lorogo_pipeline.report.periods import PeriodLength

FIRST = datetime(2026, 11, 2, 9, 15, tzinfo=UTC)
NAME = "</td></svg><script>alert('x')</script>\x00"


def facts(name: str = "notes", days: int = 3) -> ReportFacts:
    starts = [datetime(2026, 11, 2) + timedelta(days=n) for n in range(days)]  # noqa: DTZ001 - local
    periods = tuple(
        Period(
            at, 10 * n, 500 * n, 40 * n, 2, 1, 3, 1, 10 * n, n, 900.0 if n else None, 5000.0 if n else None
        )
        for n, at in enumerate(starts)
    )
    history = tuple(range(days))
    return ReportFacts(
        lake=LakeSummary(name, {"updates": 7, "answers": 3}),
        made_at=datetime(2026, 12, 1, 12, tzinfo=UTC),
        tz="UTC",
        step=PeriodLength.DAY,
        first=FIRST,
        last=FIRST + timedelta(days=days - 1),
        totals=ReportTotals(30, 1500, 120, 3, 3, 30, 3, 900.0, 5000.0, 1),
        periods=periods,
        week=tuple(tuple(range(24)) for _ in range(7)),
        peers=(Peer(name, 100, 90, 10), Peer("18446744073709551615", 10, 10, 0)),
        peers_ops=120,
        peers_from_changes=True,
        busiest=(BusyDocument(name, 20, 1000, 80, history),),
        biggest=(LargeDocument(name, 4000, 300, 20), LargeDocument("gone", 10, 3, 1, live=False)),
        reasons=(ReasonCount(name, 2, history), ReasonCount("not-owner", 1, history)),
        has_answers=True,
        materialised=DocumentTotals(3, 2, 303, 4010, 0, FIRST + timedelta(days=days)),
    )


class Elements(HTMLParser):
    """Every element with its attributes, and whether all that opened was closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "page",
    [render(facts()), render(facts(NAME)), render(ReportFacts(LakeSummary(NAME), FIRST, "UTC"))],
    ids=["plain", "hostile", "empty"],
)
def test_the_page_loads_nothing(page: str) -> None:
    """No script, no address, nothing that fetches, a policy that forbids it, and every element is closed."""
    elements = Elements(page)
    assert elements.open == []
    fetching = {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "image",
        "use",
        "video",
        "audio",
        "base",
    }
    assert not {tag for tag, _ in elements.found} & fetching
    assert not re.search(r"https?://|url\(|@import|javascript:", page)
    names = {name for _, attributes in elements.found for name in attributes}
    assert not {name for name in names if name.startswith("on")} | (
        names & {"src", "href", "srcset", "action"}
    )
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


def outermost(page: str) -> list[str]:
    """The pictures of a page, with the pictures inside of them."""
    found, begun, depth = [], 0, 0
    for tag in re.finditer("<svg|</svg>", page):
        if tag[0] == "<svg":
            begun = begun if depth else tag.start()
            depth += 1
        else:
            depth -= 1
            if not depth:
                found.append(page[begun : tag.end()])
    return found


def test_every_picture_is_valid_and_has_words() -> None:
    """Each SVG parses by itself; each is hidden from a screen reader or has a label."""
    pictures = outermost(render(facts(NAME)))
    assert len(pictures) > 15
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("aria-hidden") == "true" or (root.get("role") == "img" and root.get("aria-label"))


def test_foreign_names_are_words() -> None:
    """A document, a peer or a reason that is called like markup is shown, and does nothing."""
    page = render(facts(NAME))
    assert "<script" not in page
    assert "\x00" not in page
    assert page.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;") > 10


def test_what_the_header_says() -> None:
    """The header has the time that is covered, when it was made, and the versions of the tables."""
    page = render(facts())
    for words in ("2 Nov 2026 to 4 Nov 2026, 3 days", "1 Dec 2026, 12:00", "updates 7, answers 3", "UTC"):
        assert words in page


def test_an_empty_lake_says_what_to_do() -> None:
    """Without anything ingested the page has no charts, but the three commands, with this lake's name."""
    page = render(ReportFacts(LakeSummary("my lake"), FIRST, "UTC"))
    assert "The lake is empty" in page
    for command in ("ingest --journal", "materialise --lake", "report --lake"):
        assert command in page
    assert "--lake &#x27;my lake&#x27;" in page
    assert "<svg" not in page


def test_a_whole_lake_is_reported_too() -> None:
    """A whole lake has no notice, and a sentence that no damage was found."""
    page = render(facts())
    assert "No damage found" in page
    assert 'class="notice' not in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"digest_wrong": 2, "damaged": (DocumentProblem("hurt", 2, 0),)}, ["2 updates whose bytes", "hurt"]),
        (
            {"undecodable": 1, "damaged": (DocumentProblem("odd", 0, 1),)},
            ["1 update with the right digest", "odd"],
        ),
        ({"in_future": 3}, ["3 updates accepted after the time of this report"]),
        ({"lake": LakeSummary("x", problems=("segment <3> is torn",))}, ["segment &lt;3&gt; is torn"]),
        ({"materialised": None, "biggest": ()}, ["not materialised, so", "Unknown until"]),
        (
            {
                "materialised": DocumentTotals(3, 3, 1, 1, 9, FIRST, updates_since=4, documents_missing=1),
                "incomplete": (DocumentProblem("half", problem="peer 7 from 3 is missing"),),
            },
            [
                "half</bdi>: peer 7 from 3 is missing",
                "and 8 more",
                "4 updates followed",
                "1 edited document is not",
            ],
        ),
        ({"has_answers": False, "reasons": ()}, ["latencies and refusals are unknown"]),
        ({"totals": ReportTotals(updates=1, erased=1)}, ["1 document erased: not counted"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_called_out(change: dict[str, object], words: list[str]) -> None:
    """Damage and gaps stand above the charts, in a sentence each, with names."""
    page = render(replace(facts(), **change))  # type: ignore[arg-type] # fields by name
    before = page[: page.index("<h2>")]
    assert 'class="notice' in before
    assert all(one in page for one in words)
    assert words[0] in before


@pytest.mark.parametrize("days", [1, 2, 8, 400])
def test_any_length_of_time_makes_a_page(days: int) -> None:
    """One day or four hundred: the page renders, and its size stays that of a page."""
    page = render(facts(days=days))
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page).lower().split()
    assert len(page) < 1_500_000


def test_only_answers_or_only_updates_make_a_page() -> None:
    """A lake of which a part is empty shows the rest."""
    whole = facts()
    quiet = tuple(replace(one, updates=0, bytes=0, ops=0, documents=0, peers=0) for one in whole.periods)
    page = render(
        replace(
            whole, totals=ReportTotals(acked=5, p50_us=1.0, p99_us=2.0), periods=quiet, busiest=(), peers=()
        )
    )
    assert "How servers answered" in page
    assert "When people work" not in page
    page = render(replace(whole, has_answers=False, reasons=(), peers=()))
    assert "When people work" in page
    assert "How servers answered" not in page

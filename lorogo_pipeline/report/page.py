"""Render the report as one HTML page without scripts or external resources.

All text from documents, peers and servers is untrusted: `charts.text` escapes it.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from lorogo_pipeline.report import quantities, sections
from lorogo_pipeline.report.charts import sparkline, text
from lorogo_pipeline.report.periods import day
from lorogo_pipeline.report.quantities import count, duration, exact, plural, share, size
from lorogo_pipeline.report.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lorogo_pipeline.report.model import DocumentProblem, ReportFacts

_SAFE = "default-src 'none'; style-src 'unsafe-inline'"  # browsers load nothing for this page


def render(facts: ReportFacts) -> str:
    """Return the whole page."""
    body = [_header(facts), "<main>"]
    if facts.empty:
        body += [_troubles(facts), _nothing_yet(facts)]
    else:
        body += [_tiles(facts), _troubles(facts), *sections.sections(facts)]
    body += ["</main>", _footer(facts)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_SAFE}"/>'
        '<meta name="referrer" content="no-referrer"/>'
        f"<title>{text(facts.lake.name)}: a report on its documents</title>"
        f"<style>{STYLE}</style></head>\n<body>" + "\n".join(body) + "\n</body></html>\n"
    )


def _header(facts: ReportFacts) -> str:
    if facts.first is None or facts.last is None:
        lead = "The lake is empty."
    else:
        days = (facts.last.date() - facts.first.date()).days + 1
        same = facts.first.date() == facts.last.date()
        lead = f"{day(facts.first)}" if same else f"{day(facts.first)} to {day(facts.last)}"
        lead += f", {plural(days, 'day')}"
    versions = ", ".join(f"{name} {version}" for name, version in facts.lake.versions.items())
    about = [("Made", _moment(facts.made_at)), ("Times are", facts.tz)]
    if facts.first is not None and facts.last is not None:
        about.insert(0, ("From", f"{_moment(facts.first)} to {_moment(facts.last)}"))
    if versions:
        about.append(("Versions of the tables:", versions))
    spans = "".join(f"<span>{text(what)} <b>{text(value)}</b></span>" for what, value in about)
    return (
        f'<header><p class="eyebrow">lorogo report</p><h1><bdi>{text(facts.lake.name)}</bdi></h1>'
        f'<p class="lead">{text(lead)}</p><p class="about">{spans}</p></header>'
    )


def _tiles(facts: ReportFacts) -> str:
    totals, periods = facts.totals, facts.periods
    kept = facts.materialised
    live = (
        f"{exact(kept.live)} live, {exact(kept.documents - kept.live)} deleted"
        if kept
        else "that were edited"
    )
    tiles = [
        (
            "Updates",
            totals.updates,
            count,
            f"{count(totals.ops)} operations",
            [p.updates for p in periods],
            1,
        ),
        ("Documents", totals.documents, count, live, [p.documents for p in periods], 2),
        ("Peers", totals.peers, count, "replicas that edited", [p.peers for p in periods], 5),
        (
            "Bytes of updates",
            totals.bytes,
            size,
            _each(totals.bytes, totals.updates),
            [p.bytes for p in periods],
            6,
        ),
    ]
    found = [
        _tile(what, unit(value), beside, values, colour)
        for what, value, unit, beside, values, colour in tiles
    ]
    if facts.has_answers:
        p50 = "\N{EN DASH}" if totals.p50_us is None else duration(totals.p50_us)
        p99 = "" if totals.p99_us is None else f"99 of 100 below {duration(totals.p99_us)}"
        found.append(_tile("Time to ACK, middle", p50, p99, [p.p50_us for p in periods], 3))
        answered = totals.acked + totals.refused
        beside = f"{plural(totals.refused, 'NACK')} of {count(answered)} answers"
        found.append(
            _tile("Refused", share(totals.refused, answered), beside, [p.refused for p in periods], 4)
        )
    return f'<section class="tiles" aria-label="Totals">{"".join(found)}</section>'


def _tile(what: str, number: str, beside: str, values: Sequence[float | None], colour: int) -> str:
    return (
        f'<div class="tile"><p class="what">{text(what)}</p><p class="number">{text(number)}</p>'
        f'<p class="beside">{text(beside)}</p>{sparkline(values, colour=colour)}</div>'
    )


def _troubles(facts: ReportFacts) -> str:
    damage = [*(text(problem) for problem in facts.lake.problems), *_damage(facts)]
    missing = list(_missing(facts))
    found = ""
    if damage:
        found += _notice("Damage", damage, kind="bad")
    if missing:
        found += _notice("Missing from these numbers", missing, kind="warn")
    if not found and not facts.empty:
        found = (
            '<p class="fine"><b>No damage found.</b> Every update matches its digest'
            " and decodes, and every document is complete.</p>"
        )
    return found


def _damage(facts: ReportFacts) -> Iterable[str]:
    if facts.digest_wrong:
        where = _where(one for one in facts.damaged if one.digest_wrong)
        yield (
            f"{plural(facts.digest_wrong, 'update')} whose bytes do not match their digest{where}. Ingest"
            " another journal, replica or archive with an intact copy: it replaces the damaged one."
        )
    if facts.undecodable:
        where = _where(one for one in facts.damaged if one.undecodable)
        yield f"{plural(facts.undecodable, 'update')} with the right digest that Loro cannot decode{where}."
    if facts.materialised and facts.materialised.incomplete:
        number = facts.materialised.incomplete
        named = "; ".join(
            f'<bdi class="id">{text(one.id)}</bdi>: {text(one.problem or "no reason recorded")}'
            for one in facts.incomplete
        )
        more = f"; and {exact(number - len(facts.incomplete))} more" if number > len(facts.incomplete) else ""
        yield f"{plural(number, 'document')} are incomplete. {named}{more}."
    if facts.in_future:
        yield (
            f"{plural(facts.in_future, 'update')} accepted after the time of this report: the clock of this"
            " machine or of a server is wrong."
        )


def _missing(facts: ReportFacts) -> Iterable[str]:
    command = f"<code>lorogo pipeline materialise --lake {text(shlex.quote(facts.lake.name))}</code>"
    kept = facts.materialised
    if facts.totals.updates and kept is None:
        yield f"The documents are not materialised, so their sizes are unknown: {command}."
    if kept and kept.as_of and kept.updates_since:
        yield (
            f"The documents are materialised as of {text(_moment(kept.as_of))};"
            f" {plural(kept.updates_since, 'update')} followed: {command}."
        )
    if kept and kept.documents_missing:
        number = plural(kept.documents_missing, "edited document")
        verb = "is" if kept.documents_missing == 1 else "are"
        yield f"At least {number} {verb} not materialised: {command}."
    if not facts.has_answers and not facts.empty:
        yield (
            "The journals have no records of answers, so latencies and refusals are unknown. Servers write"
            " them every minute, but not with durability <code>stream</code>."
        )
    if facts.totals.erased:
        yield f"{plural(facts.totals.erased, 'document')} erased: not counted."


def _where(troubles: Iterable[DocumentProblem]) -> str:
    named = [f'<bdi class="id">{text(one.id)}</bdi>' for one in troubles]
    if not named:
        return ""
    some = ", ".join(named[:5]) + (", …" if len(named) > 5 else "")
    return f" (in {some})"


def _notice(title: str, items: Sequence[str], *, kind: str) -> str:
    listed = "".join(f"<li>{item}</li>" for item in items)
    return f'<section class="notice {kind}"><h3>{text(title)}</h3><ul>{listed}</ul></section>'


def _nothing_yet(facts: ReportFacts) -> str:
    lake = text(shlex.quote(facts.lake.name))
    return (
        '<section class="card first"><h3>Three steps to a report with data</h3><ol>'
        "<li>Ingest the history of the documents. The journal is the data folder of a server, or an archive"
        " that servers ship to."
        f"<pre>lorogo pipeline ingest --journal .lorogo/server --lake {lake}</pre></li>"
        "<li>Materialise the documents."
        f"<pre>lorogo pipeline materialise --lake {lake}</pre></li>"
        f"<li>Report again.<pre>lorogo pipeline report --lake {lake} --out report.html</pre></li></ol>"
        '<p class="why">No server yet? <code>lorogo dev</code> starts one here; whatever is edited there is'
        " at once.</p></section>"
    )


def _footer(facts: ReportFacts) -> str:
    return (
        "<footer><p>Source: the lake's tables, so only ingested data. An update counts once, however many"
        " servers journalled it. Its time is when JetStream stored it, not a client's clock."
        "</p><p>This page loads nothing and runs no script. It contains the names of documents: share it"
        f" accordingly. Made {text(_moment(facts.made_at))}.</p></footer>"
    )


def _each(total: int, number: int) -> str:
    return f"{quantities.size(total / number)} each, on average" if number else ""


def _moment(at: datetime) -> str:
    return f"{day(at)}, {at:%H:%M}"

"""The sections of the report, with their charts and tables."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from lorogo_pipeline.report import charts
from lorogo_pipeline.report.charts import Axis, Series, text
from lorogo_pipeline.report.periods import PeriodLength, after, day, marks, name
from lorogo_pipeline.report.quantities import count, duration, exact, plural, share, size
from lorogo_protocol.messages import reasons

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lorogo_pipeline.report.model import BusyDocument, ReportFacts

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOURS = tuple(f"{hour:02d}" for hour in range(24))
_MINUS = "\N{MINUS SIGN}"
_DELETED = '<span class="tag">deleted</span>'
_MEANINGS = {
    "digest-mismatch": "the bytes changed in transit",
    "chunk-missing": "a chunk of the update is missing",
    "too-large": "the update is above the limit",
    "invalid-update": "the bytes are not a Loro update",
    "missing-dependencies": "it depends on edits that the server did not have yet",
    "history-trimmed": "it depends on history that compaction removed; the client rebases it",
    "deleted": "the document is deleted",
    "not-owner": "another server owns the document; the client calls that one",
    "storage-full": "no storage space left",
    "document-full": "the document is at its size limit",
    "rate-limited": "too many requests",
    "read-only": "the sender has no write permission",
    "busy": "the server is overloaded",
}


def sections(facts: ReportFacts) -> Iterable[str]:
    """Yield the sections that have data."""
    axis = _axis(facts)
    if facts.totals.updates:
        yield from (_activity(facts, axis), _people(facts, axis), _growth(facts, axis), _documents(facts))
    if facts.has_answers:
        yield _answers(facts, axis)


def _axis(facts: ReportFacts) -> Axis:
    starts = [period.at for period in facts.periods]
    unfinished = set()
    if facts.first and facts.last and facts.step is not PeriodLength.HOUR:
        if facts.first.replace(tzinfo=None).date() > starts[0].date():
            unfinished.add(0)
        if after(starts[-1], facts.step) > facts.made_at.replace(tzinfo=None) or (
            facts.step is not PeriodLength.DAY and after(starts[-1], facts.step).date() > facts.last.date()
        ):
            unfinished.add(len(starts) - 1)
    return Axis(
        [name(start, facts.step) for start in starts], marks(starts, facts.step), frozenset(unfinished)
    )


def _activity(facts: ReportFacts, axis: Axis) -> str:
    updates = Series("updates", [period.updates for period in facts.periods], 1)
    top = max(facts.periods, key=lambda period: period.updates)
    label = f"Updates per {facts.step}. Most, {exact(top.updates)}, in: {name(top.at, facts.step)}."
    cards = _card(
        f"Updates per {facts.step}",
        f"Most: {exact(top.updates)} ({name(top.at, facts.step)})." + _part_note(axis, facts),
        _plot(charts.bars(axis, [updates], label=label)) + _numbers(axis, [updates], facts),
    )
    by_hour = [sum(row[hour] for row in facts.week) for hour in range(24)]
    busiest = max(range(24), key=by_hour.__getitem__)
    peak = f"Most between {busiest:02d}:00 and {(busiest + 1) % 24:02d}:00."
    hours = Axis(
        [f"{hour}:00 to {hour}:59" for hour in _HOURS], [(hour, _HOURS[hour]) for hour in range(0, 24, 3)]
    )
    whole_weeks = facts.step is not PeriodLength.HOUR and len(facts.periods) >= (
        7 if facts.step is PeriodLength.DAY else 1
    )
    series = Series("updates", by_hour, 2)
    bars = charts.bars(hours, [series], label=f"Updates by hour of the day. {peak}", height=168)
    card = _card(
        "Hour of the day", f"{peak} Times are {facts.tz}.", _plot(bars), kind="half" if whole_weeks else ""
    )
    if whole_weeks:
        described = f"Updates by weekday and hour. {peak} " + " ".join(
            f"{weekday}: {exact(sum(row))}." for weekday, row in zip(_WEEKDAYS, facts.week, strict=True)
        )
        shades = charts.heatmap(_WEEKDAYS, [f"{hour}:00" for hour in _HOURS], facts.week, label=described)
        cards += _card(
            "Hour of the week",
            "A stronger colour means more updates.",
            _plot(shades, kind="days"),
            kind="half",
        )
    return _section("When people work", "", cards + card)


def _people(facts: ReportFacts, axis: Axis) -> str:
    edited = f"Edited at least once in the {facts.step}."
    charts_ = ""
    for what, colours, values, new in (
        ("documents", (2, 6), [p.documents for p in facts.periods], [p.documents_new for p in facts.periods]),
        ("peers", (5, 4), [p.peers for p in facts.periods], [p.peers_new for p in facts.periods]),
    ):
        known = Series(
            "seen before", [all_ - first for all_, first in zip(values, new, strict=True)], colours[0]
        )
        fresh = Series("for the first time", new, colours[1])
        label = f"Active {what} per {facts.step}: between {count(min(values))} and {count(max(values))}."
        chart = charts.bars(axis, [known, fresh], label=label, height=132)
        body = _legend([known, fresh]) + _plot(chart) + _numbers(axis, [known, fresh], facts)
        charts_ += _card(f"Active {what} per {facts.step}", edited, body)
    contribution = _contribution(facts)
    kind = "half" if contribution else "whole"
    return _section(
        "Documents and people",
        "A peer is a replica that edits: a browser tab, an app, a script. A person with two devices has at"
        " least two peers, so there are at most as many people as peers.",
        f'<div class="stack {kind}">{charts_}</div>{contribution}',
    )


def _contribution(facts: ReportFacts) -> str:
    if not facts.peers:
        return ""
    whole = facts.peers_ops
    items = []
    for peer in facts.peers:
        words = f"{count(peer.ops)} · {share(peer.ops, whole)}"
        if peer.inserted is not None and peer.deleted is not None:
            words = f"+{count(peer.inserted)} {_MINUS}{count(peer.deleted)} · {share(peer.ops, whole)}"
        items.append((peer.id, float(peer.ops), words))
    shown = sum(peer.ops for peer in facts.peers)
    others = max(facts.totals.peers - len(facts.peers), 0)
    faint = frozenset[int]()
    if others and whole > shown:
        items.append((f"{plural(others, 'other peer')}", float(whole - shown), share(whole - shown, whole)))
        faint = frozenset({len(items) - 1})
    first = sum(peer.ops for peer in facts.peers[:3])
    note = "Operations: about one for each character or value inserted or removed."
    if facts.peers_from_changes:
        note = f"Characters and items inserted (+) and removed ({_MINUS}), and the share of operations."
    if facts.totals.peers > 3:
        note += f" The first three made {share(first, whole)} of all {count(whole)}."
    label = f"Contribution per peer, {plural(len(facts.peers), 'peer')} with most operations. " + "; ".join(
        f"{who}: {words}" for who, _, words in items
    )
    return _card(
        "Contribution per peer", note, charts.rows(items, label=label, colour=5, faint=faint), kind="half"
    )


def _growth(facts: ReportFacts, axis: Axis) -> str:
    cards = ""
    for title, values, total, unit, colour in (
        ("Documents", [p.documents_new for p in facts.periods], facts.totals.documents, count, 2),
        ("Updates", [p.updates for p in facts.periods], facts.totals.updates, count, 1),
        ("Bytes of updates", [p.bytes for p in facts.periods], facts.totals.bytes, size, 6),
    ):
        series = Series(title.lower(), list(accumulate(values)), colour)
        halves = sum(values[len(values) // 2 :])
        label = (
            f"{title}, cumulative: {unit(total)} at the end, {unit(halves)} in the second half of the time."
        )
        chart = charts.growth(axis, series, label=label, unit=unit, binary=unit is size)
        cards += _card(title, f"{unit(total)} at the end", _plot(chart), kind="third")
    return _section("Growth", "Cumulative. Documents count from their first edit.", cards)


def _documents(facts: ReportFacts) -> str:
    top = max((one.updates for one in facts.busiest), default=0)
    busiest = _table(
        [("Document", ""), ("Updates", "n"), ("", "far"), ("Bytes", "n"), ("Over time", "")],
        [
            [
                ("id", f"<bdi>{text(one.id)}</bdi>"),
                ("n", count(one.updates)),
                ("bar far", charts.meter(one.updates, top)),
                ("n", size(one.bytes)),
                ("bar", _history(one)),
            ]
            for one in facts.busiest
        ],
    )
    kept = facts.materialised
    cards = _card(
        "Busiest",
        f"Most updates: {share(sum(one.updates for one in facts.busiest), facts.totals.updates)} of all.",
        busiest,
        kind="half",
    )
    if not facts.biggest or kept is None:
        empty = '<p class="empty">Unknown until <code>lorogo pipeline materialise</code> has run.</p>'
        return _section("Documents", "", cards + _card("Biggest", "", empty, kind="half"))
    top = max(one.snapshot_bytes for one in facts.biggest)
    biggest = _table(
        [("Document", ""), ("Size", "n"), ("", ""), ("Characters", "n far"), ("Updates", "n far")],
        [
            [
                ("id", f"<bdi>{text(one.id)}</bdi>{'' if one.live else _DELETED}"),
                ("n", size(one.snapshot_bytes)),
                ("bar", charts.meter(one.snapshot_bytes, top, colour=2)),
                ("n far", count(one.chars)),
                ("n far", count(one.updates)),
            ]
            for one in facts.biggest
        ],
    )
    as_of = f" as of {day(kept.as_of)}, {kept.as_of:%H:%M}" if kept.as_of else ""
    note = f"Bytes of a snapshot{as_of}. All {exact(kept.documents)} together: {size(kept.snapshot_bytes)}."
    return _section("Busiest and biggest documents", "", cards + _card("Biggest", note, biggest, kind="half"))


def _history(one: BusyDocument) -> str:
    return charts.sparkline(one.history, height=22)


def _answers(facts: ReportFacts, axis: Axis) -> str:
    middle = Series("p50", [period.p50_us for period in facts.periods], 2)
    most = Series("p99", [period.p99_us for period in facts.periods], 3)
    totals = facts.totals
    label = "Time to ACK."
    if totals.p50_us is not None and totals.p99_us is not None:
        label = (
            f"Time to ACK: half below {duration(totals.p50_us)}, 99 of 100 below {duration(totals.p99_us)}."
        )
    curves = charts.lines(axis, [most, middle], label=label, unit=duration, logarithmic=True, area=False)
    cards = _card(
        f"Time to ACK per {facts.step}",
        "From the arrival of the complete update at the server to its ACK, without the network. Recorded by"
        " powers of two, so exact within a factor of two.",
        _legend([middle, most]) + _plot(curves) + _numbers(axis, [middle, most], facts, unit=duration),
        kind="half",
    )
    shown = [Series(one.name, one.history, index) for index, one in enumerate(facts.reasons, start=1)]
    other = [
        max(period.refused - sum(one.history[place] for one in facts.reasons), 0)
        for place, period in enumerate(facts.periods)
    ]
    if sum(other):
        shown.append(Series("other reasons", other, 8))
    if shown:
        stacked = charts.bars(axis, shown, label=_why(facts))
        body = _legend(shown) + _plot(stacked) + _numbers(axis, shown, facts)
    else:
        body = '<p class="empty">Nothing was refused.</p>'
    answered = totals.acked + totals.refused
    who = plural(totals.servers, "server")
    note = f"{plural(totals.refused, 'NACK')} among {exact(answered)} answers of {who}."
    cards += _card(f"Refusals per {facts.step}, by reason", note, body, kind="half")
    if facts.reasons:
        cards += _reasons(facts)
    return _section(
        "How servers answered",
        "ACK: the update is durable. NACK: it was refused, with a reason. Where the table shows it, the"
        " client resends the update automatically: such a refusal costs time, not an edit.",
        cards,
    )


def _reasons(facts: ReportFacts) -> str:
    top = max(one.count for one in facts.reasons)
    known = {str(reason): reason.retriable for reason in reasons.Reason}
    rows = [
        [
            ("id", f"<bdi>{text(one.name)}</bdi>"),
            ("n", exact(one.count)),
            ("bar far", charts.meter(one.count, top, colour=index)),
            ("", text(_MEANINGS.get(one.name, ""))),
            ("", "yes" if known.get(one.name) else "no" if one.name in known else ""),
        ]
        for index, one in enumerate(facts.reasons, start=1)
    ]
    heads = [("Reason", ""), ("NACKs", "n"), ("", "far"), ("Meaning", ""), ("Resent automatically", "")]
    return _card("Reasons", "", _table(heads, rows), kind="reasons")


def _why(facts: ReportFacts) -> str:
    return (
        "Refusals by reason: " + "; ".join(f"{one.name}: {exact(one.count)}" for one in facts.reasons) + "."
    )


def _part_note(axis: Axis, facts: ReportFacts) -> str:
    return f" Paler: an incomplete {facts.step}." if axis.unfinished else ""


def _numbers(axis: Axis, series: Sequence[Series], facts: ReportFacts, *, unit: object = None) -> str:
    heads = [(facts.step.value.capitalize(), ""), *((one.name, "n") for one in series)]
    rows = [
        [("", text(place)), *(("n", _exactly(one.values[index], unit)) for one in series)]
        for index, place in enumerate(axis.names)
    ]
    return f"<details><summary>Numbers</summary>{_table(heads, rows)}</details>"


def _exactly(value: float | None, unit: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    return duration(value) if unit is duration else exact(int(value))


def _legend(series: Sequence[Series]) -> str:
    named = "".join(
        f'<span><i class="c{one.colour}"></i><bdi>{text(one.name)}</bdi></span>' for one in series
    )
    return f'<p class="legend">{named}</p>'


def _plot(chart: str, kind: str = "") -> str:
    return f'<div class="plot {kind}">{chart}</div>'


def _table(heads: Sequence[tuple[str, str]], rows: Sequence[Sequence[tuple[str, str]]]) -> str:
    head = "".join(f'<th scope="col" class="{kind}">{text(words)}</th>' for words, kind in heads)
    body = "".join(
        "<tr>" + "".join(f'<td class="{kind}">{cell}</td>' for kind, cell in row) + "</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _card(title: str, note: str, body: str, *, kind: str = "") -> str:
    shown = f'<p class="note">{text(note)}</p>' if note else ""
    return f'<article class="card {kind}"><h3>{text(title)}</h3>{shown}{body}</article>'


def _section(title: str, why: str, cards: str) -> str:
    shown = f'<p class="why">{text(why)}</p>' if why else '<p class="why"></p>'
    return f'<section><h2>{text(title)}</h2>{shown}<div class="grid">{cards}</div></section>'

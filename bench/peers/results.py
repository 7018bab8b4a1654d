"""Check the driver's results; make tables of the best repetitions and their ranges. Pure.

    records = [*read(1, "w1", lines)]
    print(markdown(records))

A record is a line of the driver with `repetition` added. A wrong record gives no figure.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Record = Mapping[str, Any]

OURS = "lorogo"  # prefix of our names
CEILING = "relay"  # only forwards frames: the limit of the driver, not a server to compare with
W1_WARM_UP, W2_WARM_UP, W3_WARM_UP = 200, 200, 20  # updates of the driver before it measures
W1_UPDATES, W3_UPDATES, W4_UPDATES = 1000, 200, 10
W5_OPENS = "3/3"
_OF_OTHERS = ("check", "inside")  # lines with facts about another record


@dataclass(frozen=True, slots=True)
class Figure:
    """A column: its key in a record, and whether more is better."""

    workload: str
    words: str
    key: str
    more_is_better: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A figure of one server: the best of the repetitions, and their range."""

    best: float
    lowest: float
    highest: float
    repetitions: int


@dataclass(frozen=True, slots=True)
class Goal:
    """Our figure should be at least (or at most) `times` the best of the others, or of `against`."""

    figure: Figure
    ours: str
    times: float = 1.0
    against: str = ""


def _figures(workload: str, *columns: tuple[str, str, bool]) -> tuple[Figure, ...]:
    return tuple(Figure(workload, *column) for column in columns)


MANY = (
    ("opens/s", "opens_per_s", True),
    ("updates/s", "updates_per_s", True),
    ("server memory, KiB for each document", "rss_kb_per_doc", False),
    ("server CPU, µs for each update", "server_us_per_update", False),
)
FIGURES = (
    *_figures(
        "w1",
        ("p50 ms", "p50_ms", False),
        ("p99 ms", "p99_ms", False),
        ("p50 ms in the client", "inside_p50_ms", False),
    ),
    *_figures(
        "w2", ("updates/s", "updates_per_s", True), ("server CPU, µs for each", "server_us_per_update", False)
    ),
    *_figures(
        "w3",
        ("p50 ms until all have it", "p50_ms", False),
        ("p99 ms", "p99_ms", False),
        ("p50 ms in the client", "inside_p50_ms", False),
        ("deliveries/s", "deliveries_per_s", True),
        ("server CPU, µs for each delivery", "server_us_per_delivery", False),
    ),
    *_figures("w4", *MANY),
    *_figures("w4k", *MANY),
    *_figures(
        "w5",
        ("cold open ms", "opens.ms", False),
        ("opened again ms", "opens.second_ms", False),
        ("bytes on disk", "disk_bytes", False),
        ("ingest s", "ingest_s", False),
    ),
    *_figures("w6", ("accepted", "accepted", True), ("of them lost", "lost", False)),
)
TITLES = {
    "w1": "W1: one writer, one reader, one character after the other",
    "w2": "W2: 5,000 updates without waiting",
    "w3": "W3: one writer, 50 readers",
    "w4": "W4: 200 documents",
    "w4k": "W4: 1,000 documents",
    "w5": "W5: a history of 259,778 edits, opened after a restart",
    "w6": "W6: kill -9 under load",
}


def _figure(workload: str, key: str) -> Figure:
    return next(one for one in FIGURES if (one.workload, one.key) == (workload, key))


NATIVE, NATIVE_STREAM, GATEWAY = "lorogo-native", "lorogo-native-stream", "lorogo-gateway"
GOALS = (
    Goal(_figure("w1", "p50_ms"), NATIVE),
    Goal(_figure("w2", "updates_per_s"), NATIVE),
    Goal(_figure("w2", "updates_per_s"), NATIVE_STREAM),
    Goal(_figure("w3", "deliveries_per_s"), NATIVE, 1.5),
    Goal(_figure("w3", "deliveries_per_s"), GATEWAY, against="loro-websocket"),
    *(
        Goal(_figure(workload, key), NATIVE)
        for workload in ("w4", "w4k")
        for key in ("rss_kb_per_doc", "opens_per_s")
    ),
    Goal(_figure("w5", "opens.ms"), NATIVE, 0.5),
)


def read(repetition: int, workload: str, lines: Iterable[str]) -> Iterator[Record]:
    """Yield the records in the driver's output for this workload."""
    for line in lines:
        if line.startswith("{"):
            record = json.loads(line)
            own = workload if record["workload"] not in _OF_OTHERS else record["workload"]
            yield {**record, "workload": own, "repetition": repetition}


def wrong(records: Sequence[Record]) -> list[str]:
    """Return the wrong results, one sentence each."""
    return [f"{_name(one)}: {why}" for one in _measured(records) for why in _faults(one, records)]


def found(records: Sequence[Record], server: str, figure: Figure) -> Found | None:
    """Return the figure of a server from its right records; None: there is none."""
    values: list[float] = []
    for one in _measured(records):
        if one["peer"] == server and one["workload"] == figure.workload and not list(_faults(one, records)):
            values += _values(one, figure.key, records)
    if not values:
        return None
    if figure.workload == "w6":  # a count, of all that was tried
        values = [sum(values)]
    best = max(values) if figure.more_is_better else min(values)
    return Found(best, min(values), max(values), len(values))


def servers(records: Sequence[Record]) -> list[str]:
    """Return the servers in the records, in order."""
    return list(dict.fromkeys(one["peer"] for one in records))


def best_of_others(records: Sequence[Record], figure: Figure, against: str = "") -> tuple[str, float] | None:
    """Return the best of the other servers and its figure."""
    some = [
        (name, value.best)
        for name in servers(records)
        if not name.startswith(OURS) and name != CEILING and against in ("", name)
        if (value := found(records, name, figure)) is not None
    ]
    if not some:
        return None
    return (max if figure.more_is_better else min)(some, key=lambda one: one[1])


def markdown(records: Sequence[Record]) -> str:
    """Return all tables: one per workload, and the goals."""
    parts = [_table(records, workload, title) for workload, title in TITLES.items()]
    return "\n\n".join(part for part in [*parts, _goals(records)] if part)


def as_json(records: Sequence[Record]) -> dict[str, Any]:
    """Return the results and every record for scripts."""
    figures = [
        {
            "server": name,
            "workload": figure.workload,
            "figure": figure.key,
            "best": value.best,
            "lowest": value.lowest,
            "highest": value.highest,
            "repetitions": value.repetitions,
        }
        for name in servers(records)
        for figure in FIGURES
        if (value := found(records, name, figure)) is not None
    ]
    return {"figures": figures, "wrong": wrong(records), "records": [dict(one) for one in records]}


def number(value: float) -> str:
    """Return a number with three significant digits; large ones whole, with commas."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def row(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _measured(records: Iterable[Record]) -> list[Record]:
    return [one for one in records if one["workload"] not in _OF_OTHERS]


def _name(record: Record) -> str:
    return f"{record['peer']} {record['workload']} ({record['repetition']})"


def _beside(record: Record, kind: str, records: Iterable[Record]) -> Record | None:
    """Return the line of that kind about this record."""
    wanted = (kind, record["workload"], record["peer"], record["repetition"])
    for one in records:
        if (one["workload"], one.get("of"), one["peer"], one["repetition"]) == wanted:
            return one
    return None


def _faults(record: Record, records: Sequence[Record]) -> Iterator[str]:
    if "error" in record:
        yield str(record["error"])
        return
    workload = record["workload"]
    if workload in ("w1", "w2", "w3", "w4", "w4k"):
        yield from _text_faults(record, _beside(record, "check", records))
    if workload == "w2" and record["n"] != record["of"]:
        yield f"{record['n']} of {record['of']} updates arrived"
    if workload in ("w4", "w4k") and not record["complete"]:
        yield "not every update arrived"
    if workload == "w5":
        if not record["local_ok"]:
            yield "the text is not that of the trace"
        if not record["server_has_all"]:
            yield "the server did not have the whole text in time"
        if record["cold_ok"] != W5_OPENS:
            yield f"{record['cold_ok']} opened with the whole text"
    if workload == "w6":
        closed = [one for one in record["rounds"] if not one["opened"]]
        if closed:
            yield f"{len(closed)} rounds after which it could not be opened"
        if record["lost"] and record["peer"].startswith(OURS):  # of others it is a result
            yield f"{record['lost']} accepted updates are lost"


def _text_faults(record: Record, check: Record | None) -> Iterator[str]:
    if check is None:
        yield "the texts were not checked"
        return
    if check["differ"]:
        yield f"{check['differ']} of {check['documents']} texts differ"
    match record["workload"]:
        case "w1":  # the warm-up is cut where it takes too long
            expected = range(record["n"] + 1, record["n"] + W1_WARM_UP + 1)
        case "w2":
            expected = range(record["of"] + W2_WARM_UP, record["of"] + W2_WARM_UP + 1)
        case "w3":
            expected = range(record["n"] + W3_WARM_UP, record["n"] + W3_WARM_UP + 1)
        case _:
            expected = range(record["docs"] * W4_UPDATES, record["docs"] * W4_UPDATES + 1)
    if check["characters"] not in expected:
        yield f"{check['characters']} characters, not {expected.start}"


def _values(record: Record, key: str, records: Sequence[Record]) -> list[float]:
    first, _, second = key.partition(".")
    if second:  # a list of its own: the restarts of one run
        return [one[second] for one in record[first] if one.get(second) is not None]
    if first.startswith("inside_"):
        inside = _beside(record, "inside", records)
        return [] if inside is None or not inside["n"] else [inside[first.removeprefix("inside_")]]
    return [] if record.get(first) is None else [record[first]]


def _table(records: Sequence[Record], workload: str, title: str) -> str:
    figures = [one for one in FIGURES if one.workload == workload]
    rows = []
    for name in servers(records):
        values = [found(records, name, figure) for figure in figures]
        if any(value is not None for value in values):
            rows.append(row([name, *map(_cell, values), _busy(records, name, workload)]))
        elif any(one["peer"] == name for one in _measured(records) if one["workload"] == workload):
            rows.append(row([name, "wrong", *[""] * len(figures)]))
    if not rows:
        return ""
    head = ["server", *(one.words for one in figures), "cores used by others"]
    return "\n".join([f"**{title}**", "", row(head), row(["---"] * len(head)), *rows])


def _cell(value: Found | None) -> str:
    if value is None:
        return "-"
    if value.repetitions == 1 or value.lowest == value.highest:
        return number(value.best)
    return f"{number(value.best)} ({number(value.lowest)} - {number(value.highest)})"


def _busy(records: Sequence[Record], server: str, workload: str) -> str:
    """The most that other processes used while it was measured."""
    some = [
        one["foreign_cores"]
        for one in records
        if one["peer"] == server and one["workload"] == workload and "foreign_cores" in one
    ]
    return number(max(some)) if some else "-"


def _goals(records: Sequence[Record]) -> str:
    rows = []
    for goal in GOALS:
        ours = found(records, goal.ours, goal.figure)
        best = best_of_others(records, goal.figure, goal.against)
        if ours is None or best is None or not best[1]:
            continue
        ratio = ours.best / best[1]
        met = ratio >= goal.times if goal.figure.more_is_better else ratio <= goal.times
        bound = f"{'at least' if goal.figure.more_is_better else 'at most'} {goal.times:g}x"
        what = f"{goal.figure.workload.upper()} {goal.figure.words}"
        theirs = f"{number(best[1])} ({best[0]})"
        rows.append(
            row(
                [
                    what,
                    goal.ours,
                    number(ours.best),
                    theirs,
                    f"{ratio:.2f}x",
                    bound,
                    "met" if met else "MISSED",
                ]
            )
        )
    if not rows:
        return ""
    head = ["aim", "lorogo", "its best", "best of the others", "ratio", "wanted", "verdict"]
    return "\n".join(["**Against the best of the others**", "", row(head), row(["---"] * len(head)), *rows])

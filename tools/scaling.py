"""The resources that a load requires, from measured costs: the tables of docs/SCALING.md.

    python tools/scaling.py                                  # the tables of the page
    python tools/scaling.py --editors 20000 --documents 1e6  # your load
    python tools/scaling.py --check                          # exit code 1 if the page has other tables

This is arithmetic, not a measurement: it adds the costs of one machine, as if size did not slow it down.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "SCALING.md"
BEGIN, END = "<!-- tools/scaling.py -->", "<!-- /tools/scaling.py -->"
_KIB, _GIB = 1024, 1 << 30


@dataclass(frozen=True)
class Costs:
    """Costs measured on 2 cores of one machine, with durability journal; in brackets the command."""

    update_us: float = 161.0  # CPU of the server for an update, 1,000 documents open [lorogo bench growth]
    open_us: float = 1012.0  # CPU of the server for an open [600 opens, 64 at once, on a busy machine]
    move_us: float = 166.0  # CPU of the server for a cursor move [lorogo bench presence, a connection each]
    lease_us: float = 13.1  # CPU of the server per second of an idle document [lorogo bench many-documents]
    document_bytes: float = 60.6 * _KIB  # of server memory for a small open document [the same]
    nats_update_us: float = 27.0  # CPU of nats-server: stored, republished, announced to one reader, ACKed
    # [lorogo bench throughput]
    nats_lease_us: float = 9.39  # CPU of nats-server per second of an idle document [many-documents]
    nats_delivery_us: float = 4.8  # at most: 2 cores made 418,202 deliveries, and the readers used them, too
    # [lorogo bench fan-out, its limit]
    nats_document_bytes: float = 12.75 * _KIB  # at most, for an open document [lorogo bench many-documents]
    wal_bytes: float = 369.0  # of a keystroke in the WAL [lorogo bench cold-open]
    journal_bytes: float = 191.0  # of a keystroke in the journal [5,000 records of one character]
    stream_updates: float = 69_503.0  # of one stream, per second [lorogo bench throughput, its limit]


@dataclass(frozen=True)
class ScalingLoad:
    """The load of a service. The defaults are guesses: pass your own."""

    documents: float = 10e6  # existing documents
    editors: float = 1e6  # people who have a document open
    per_document: float = 3.0  # editors of an open document
    typing: float = 0.2  # share of the editors who type at a time
    updates: float = 2.0  # per second and typing editor, with as many cursor moves
    stay_seconds: float = 1200.0  # for which a document is open
    cell_documents: float = 250_000.0  # documents of one WAL and its buckets
    use: float = 0.6  # share of a core, so that a failed neighbour's load fits


_WORDS = {
    "documents": "existing documents",
    "editors": "people who have a document open",
    "per_document": "editors of an open document",
    "typing": "share of the editors who type at a time",
    "updates": "updates per second and typing editor, with as many cursor moves",
    "stay_seconds": "seconds for which a document is open",
    "cell_documents": "documents of one WAL and its buckets",
    "use": "used share of a core, so that a failed neighbour's load fits",
}
_BOUNDS = {"per_document": (1.0, 1e6), "typing": (0.0, 1.0), "use": (0.0, 1.0)}  # others: 0 to 1e12


@dataclass(frozen=True)
class ScalingNeeds:
    """The required resources."""

    open_documents: float
    updates: float  # per second
    deliveries: float  # per second: updates to readers, and cursor moves
    server_cores: float
    server_bytes: float
    nats_cores: float
    nats_bytes: float  # of one copy
    streams: int  # for the updates per second
    cells: int  # for the streams and the existing documents
    wal_bytes: float  # per day, of one copy, before compaction
    journal_bytes: float  # per day


def needs(load: ScalingLoad, costs: Costs) -> ScalingNeeds:
    """Return the resources for a load."""
    open_documents = load.editors / load.per_document
    updates = load.editors * load.typing * load.updates
    opens = open_documents / load.stay_seconds
    others = load.per_document - 1
    deliveries = 2 * updates * others  # of an update, and of a cursor move
    server_us = (
        updates * (costs.update_us + costs.move_us) + opens * costs.open_us + open_documents * costs.lease_us
    )
    nats_us = (
        updates * costs.nats_update_us
        + deliveries * costs.nats_delivery_us
        + open_documents * costs.nats_lease_us
    )
    streams = math.ceil(updates / (load.use * costs.stream_updates))
    return ScalingNeeds(
        open_documents=open_documents,
        updates=updates,
        deliveries=deliveries,
        server_cores=server_us / 1e6 / load.use,
        server_bytes=open_documents * costs.document_bytes,
        nats_cores=nats_us / 1e6 / load.use,
        nats_bytes=load.documents * costs.nats_document_bytes,
        streams=streams,
        cells=max(streams, math.ceil(load.documents / load.cell_documents)),
        wal_bytes=updates * costs.wal_bytes * 86400,
        journal_bytes=updates * costs.journal_bytes * 86400,
    )


def tables(loads: list[tuple[str, ScalingLoad]], costs: Costs) -> str:
    """Return Markdown tables, with a column for each load."""
    found = [needs(load, costs) for _, load in loads]
    rows: list[tuple[str, list[str]]] = [
        ("documents that exist", [f"{load.documents:,.0f}" for _, load in loads]),
        ("editors at once", [f"{load.editors:,.0f}" for _, load in loads]),
        ("documents open", [f"{one.open_documents:,.0f}" for one in found]),
        ("updates a second", [f"{one.updates:,.0f}" for one in found]),
        ("deliveries a second", [f"{one.deliveries:,.0f}" for one in found]),
        ("cores for servers", [f"{one.server_cores:,.1f}" for one in found]),
        ("memory of servers, GiB", [f"{one.server_bytes / _GIB:,.1f}" for one in found]),
        ("cores for NATS, one copy", [f"{one.nats_cores:,.1f}" for one in found]),
        ("memory of NATS, one copy, GiB, at most", [f"{one.nats_bytes / _GIB:,.1f}" for one in found]),
        ("streams, by updates a second", [f"{one.streams:,}" for one in found]),
        ("cells", [f"{one.cells:,}" for one in found]),
        ("cores for servers of a cell", [f"{one.server_cores / one.cells:,.1f}" for one in found]),
        ("WAL a day, one copy, GiB", [f"{one.wal_bytes / _GIB:,.0f}" for one in found]),
        ("journals a day, GiB", [f"{one.journal_bytes / _GIB:,.0f}" for one in found]),
    ]
    lines = ["| | " + " | ".join(name for name, _ in loads) + " |", "|---" * (len(loads) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(values) + " |" for name, values in rows]
    return "\n".join(lines)


def of_the_page() -> str:
    """Return the tables of docs/SCALING.md."""
    loads = [
        ("a team", ScalingLoad(documents=10_000, editors=300)),
        ("a company", ScalingLoad(documents=1e6, editors=20_000)),
        ("a service", ScalingLoad()),
    ]
    return tables(loads, Costs())


def main(words: list[str]) -> int:
    """Print the tables, or check those of the page."""
    parser = argparse.ArgumentParser(description="Compute the resources of a load from measured costs.")
    parser.add_argument("--check", action="store_true", help="check that docs/SCALING.md has these tables")
    for name, value in vars(ScalingLoad()).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=_number, metavar="N", help=f"{_WORDS[name]} ({value:,.12g})"
        )
    options = vars(parser.parse_args(words))
    if options.pop("check"):
        shown = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
        if shown != of_the_page():
            print(f"{PAGE.name} is out of date: put this between its two marks", file=sys.stderr)
            return 1
        return 0
    wanted = {name: value for name, value in options.items() if value is not None}
    for name, value in wanted.items():
        least, most = _BOUNDS.get(name, (0.0, 1e12))
        if not least <= value <= most or not value:
            parser.error(f"--{name.replace('_', '-')} {value:,g} is not between {least:,g} and {most:,g}")
    print(tables([("yours", ScalingLoad(**wanted))], Costs()) if wanted else of_the_page())
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Weeks of editing in a few seconds: a journal to try the pipeline on, without a server.

    .venv/bin/python examples/simulated_days.py days.journal --traces DIR
    .venv/bin/lorogo pipeline report --journal days.journal --out report.html

Several people type real editing traces (of the public collection josephg/editing-traces, as `*.json.gz`
with the fields `txns` and `endContent`) into documents, or made ones if there are none. What they type
is real; who types when, and how quickly servers answered, is drawn at random, always the same.
"""

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loro import ExportMode, LoroDoc

from lorogo_log import BlockingLog
from lorogo_protocol.journal import latency, records
from lorogo_protocol.journal.records import ANSWERS_KEY, AnswersRecord, UpdateRecord
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.digest import digest

PEOPLE = 6
PATCHES_PER_UPDATE = 40
HOURS = [1, 1, 0, 0, 0, 0, 1, 3, 8, 14, 16, 12, 7, 10, 15, 16, 13, 9, 6, 4, 4, 3, 2, 1]  # how busy each is
Patch = tuple[int, int, str]


def traces(folder: Path | None) -> Iterator[tuple[str, list[Patch], str]]:
    """Return (name, patches, final text) of each trace."""
    found = sorted(folder.glob("*.json.gz")) if folder else []
    for path in found:
        body = json.loads(gzip.decompress(path.read_bytes()))
        if "startContent" not in body or body.get("kind") == "concurrent":
            continue  # another format
        patches = [(at, deleted, text) for txn in body["txns"] for at, deleted, text in txn["patches"]]
        yield path.name.removesuffix(".json.gz"), patches, body["endContent"]
    if not found:
        rng = random.Random(7)
        words = ["a", "document", "that", "several", "people", "write", "grows", "in", "all", "places"]
        for number in range(5):
            text, patches = "", []
            for _ in range(2000):
                at, word = rng.randint(0, len(text)), rng.choice(words) + " "
                patches.append((at, 0, word))
                text = text[:at] + word + text[at:]
            yield f"made-{number}", patches, text


def moments(rng: random.Random, count: int, first: datetime, days: int) -> list[datetime]:
    """Return the times of updates, mostly in busy hours of working days."""
    weights = [(0.15 if (first + timedelta(day)).weekday() > 4 else 1) for day in range(days)]
    found = []
    for day in rng.choices(range(days), weights, k=count):
        hour = rng.choices(range(24), HOURS)[0]
        found.append(first + timedelta(day, hours=hour, seconds=rng.uniform(0, 3600)))
    return sorted(found)


def typed(
    name: str, patches: list[Patch], end: str, first: datetime, days: int, people: list[int]
) -> Iterator[tuple[datetime, bytes]]:
    """Yield the updates of one document by changing authors. Raises if the final text is not the trace's."""
    rng = random.Random(name)
    authors = {peer: LoroDoc() for peer in rng.sample(people, k=min(len(people), rng.randint(2, 4)))}
    for peer, doc in authors.items():
        doc.peer_id = peer
    pieces = [patches[at : at + PATCHES_PER_UPDATE] for at in range(0, len(patches), PATCHES_PER_UPDATE)]
    writer = next(iter(authors))
    for when, piece in zip(moments(rng, len(pieces), first, days), pieces, strict=True):
        if rng.random() < 0.1:  # another author continues
            last, writer = authors[writer], rng.choice(list(authors))
            authors[writer].import_(last.export(ExportMode.Updates(authors[writer].oplog_vv)))
        doc = authors[writer]
        before, text = doc.oplog_vv, doc.get_text("text")
        for at, deleted, inserted in piece:
            if deleted:
                text.delete(at, deleted)
            if inserted:
                text.insert(at, inserted)
        doc.commit()
        yield when, doc.export(ExportMode.Updates(before))
    assert authors[writer].get_text("text").to_string() == end, name


def answers(rng: random.Random, when: datetime, acked: int) -> AnswersRecord:
    """Return random server metrics of one minute."""
    counts = [0] * latency.COUNTS_MAX
    for _ in range(acked):
        counts[latency.bucket_of(int(rng.lognormvariate(6.8, 0.7)))] += 1
    reasons = {} if rng.random() < 0.97 else {rng.choice(["missing-dependencies", "history-trimmed"]): 1}
    since = int(when.timestamp()) * 1_000_000_000
    return AnswersRecord("simulated", since, since + 60_000_000_000, acked, tuple(counts), reasons)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("journal", type=Path)
    options.add_argument("--traces", type=Path)
    options.add_argument("--days", type=int, default=30)
    options.add_argument("--first", default="2026-10-12")
    given = options.parse_args()
    if given.traces is not None and not given.traces.is_dir():
        options.error(f"{given.traces} is not a folder")
    first = datetime.fromisoformat(given.first).replace(tzinfo=UTC)
    rng = random.Random(1)
    people = [rng.getrandbits(63) for _ in range(PEOPLE)]
    found = sorted(
        (when, name, payload)
        for name, patches, end in traces(given.traces)
        for when, payload in typed(name, patches, end, first, given.days, people)
    )
    minute, acked = found[0][0], 0
    with BlockingLog(given.journal) as log:
        for sequence, (when, name, payload) in enumerate(found, 1):
            if acked and when - minute > timedelta(minutes=1):
                made = answers(rng, minute, acked)
                log.append(records.encode(made), key=ANSWERS_KEY, ts=made.until_ns)
                acked = 0
            minute, acked = (when if not acked else minute), acked + 1
            record = UpdateRecord(
                1, sequence, f"simulated-{sequence}", digest(payload), 1, 0, crdt.spans(payload), payload
            )
            at = int(when.timestamp() * 1_000_000) * 1000
            log.append(records.encode(record), key=name.encode(), ts=at)
    print(f"{given.journal}: {len(found)} updates of {len({name for _, name, _ in found})} documents")


if __name__ == "__main__":
    main()

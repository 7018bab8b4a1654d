"""Real editing traces for drills, where they are at hand; a small made one where they are not.

The real ones are from the public collection josephg/editing-traces (CC BY 4.0); `automerge-paper` was
prepared by Martin Kleppmann. Put them into a folder `data/traces` beside the project or name the
folder in LOROGO_TRACES.
"""

import gzip
import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

_PROJECT = Path(__file__).parents[2]
Patch = tuple[int, int, str]


@dataclass(frozen=True)
class Trace:
    """Edits in order, and what they lead to."""

    name: str
    end_content: str
    patches: list[Patch]


def trace(name: str) -> Trace:
    """The named trace, or a made one of 20,000 edits if it is not at hand."""
    folders = [Path(os.environ["LOROGO_TRACES"])] if "LOROGO_TRACES" in os.environ else []
    folders.append(_PROJECT.parent / "shared" / "data" / "traces")
    for folder in folders:
        path = folder / f"{name}.json.gz"
        if path.exists():
            return _read(name, path)
    return made(20_000)


def _read(name: str, path: Path) -> Trace:
    with gzip.open(path, "rt") as file:
        body = json.load(file)
    patches = [
        (position, deleted, inserted)
        for txn in body["txns"]
        for position, deleted, inserted in txn["patches"]
    ]
    assert not body["startContent"]
    return Trace(name, body["endContent"], patches)


def made(count: int) -> Trace:
    """Somebody who types, jumps about and deletes; always the same."""
    rng = random.Random(7)
    text = ""
    patches: list[Patch] = []
    at = 0
    for _ in range(count):
        if rng.random() < 0.02:
            at = rng.randint(0, len(text))
        if text and at and rng.random() < 0.15:
            patches.append((at - 1, 1, ""))
            text = text[: at - 1] + text[at:]
            at -= 1
        else:
            letter = rng.choice("etaoin shrdlu\n")
            patches.append((at, 0, letter))
            text = text[:at] + letter + text[at:]
            at += 1
    return Trace("made", text, patches)

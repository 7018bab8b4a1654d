"""Editing traces for writers: real ones from a folder, or a generated one.

`--traces` or LOROGO_TRACES names the folder. Its files are those of the public collection
josephg/editing-traces (CC BY 4.0): `NAME.json.gz`, sequential, from empty to `endContent`.
"""

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lorogo_chaos.errors import ChaosError

MADE_EDITS = 20_000

Patch = tuple[int, int, str]  # position, characters to delete, text to insert


class BadTrace(ChaosError):
    """The folder or file of traces cannot be read."""


@dataclass(frozen=True)
class RecordedTrace:
    """Edits in order, and the resulting text."""

    name: str
    end_content: str
    patches: list[Patch]


def read(path: Path) -> RecordedTrace:
    """Read the trace of a file. Raises BadTrace."""
    name = path.name.removesuffix(".json.gz")
    try:
        with gzip.open(path, "rt") as file:
            body = json.load(file)
        if body.get("kind", "") == "concurrent" or any("parents" in txn for txn in islice(body["txns"], 1)):
            raise BadTrace(f"{path} is a concurrent trace; only sequential ones are replayed")
        if body["startContent"]:
            raise BadTrace(f"{path} does not begin with an empty text")
        patches = [
            (int(position), int(deleted), str(inserted))
            for txn in body["txns"]
            for position, deleted, inserted in txn["patches"]
        ]
        return RecordedTrace(name, str(body["endContent"]), patches)
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadTrace(f"{path} is not a trace: {error}") from None


def of_folder(folder: Path | None) -> list[RecordedTrace]:
    """Read every sequential trace of the folder, by name; or the generated one. Raises BadTrace."""
    if folder is None:
        return [made(MADE_EDITS)]
    found: list[RecordedTrace] = []
    why = "has no .json.gz in it"
    for path in sorted(folder.glob("*.json.gz")):
        try:
            found.append(read(path))
        except BadTrace as error:
            why = f"has none that can be replayed: {error}"
    if not found:
        raise BadTrace(f"the folder of traces {folder} {why}")
    return found


def made(count: int) -> RecordedTrace:
    """Generate typing, jumps and deletions; always the same."""
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
    return RecordedTrace("made", text, patches)


def fitted(patch: Patch, length: int) -> Patch:
    """Return the patch clipped to a text of that length, which other writers edit, too."""
    position, deleted, inserted = patch
    position = min(position, length)
    return position, min(deleted, length - position), inserted


def around(patches: Sequence[Patch], start: int) -> Iterator[Patch]:
    """Yield the patches from one of them on, repeatedly."""
    at = start % len(patches)
    while True:
        yield patches[at]
        at = (at + 1) % len(patches)

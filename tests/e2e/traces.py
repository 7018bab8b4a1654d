"""Real editing traces for drills, where they are at hand; a small made one where they are not.

`automerge-paper` was prepared by Martin Kleppmann. Put the traces into a folder `data/traces` beside the
project or name the folder in LOROGO_TRACES (lorogo_chaos/fleet/traces.py describes them).
"""

import os
from pathlib import Path

from lorogo_chaos.fleet.traces import MADE_EDITS, Patch, RecordedTrace, made, read

__all__ = ["Patch", "RecordedTrace", "trace"]

_PROJECT = Path(__file__).parents[2]


def trace(name: str) -> RecordedTrace:
    """The named trace, or a made one of 20,000 edits if it is not at hand."""
    folders = [Path(os.environ["LOROGO_TRACES"])] if "LOROGO_TRACES" in os.environ else []
    folders.append(_PROJECT.parent / "shared" / "data" / "traces")
    for folder in folders:
        path = folder / f"{name}.json.gz"
        if path.exists():
            return read(path)
    return made(MADE_EDITS)

"""`lorogo serve`, with the longest stretch of its event loop in a file.

    python bench/watched_serve.py FILE [arguments of `lorogo serve`]

The file holds two doubles: the most CPU seconds that one callback of the loop took, and one that a reader
sets to 1.0 to begin again. CPU of the thread, so that other programs on the machine do not count.
"""

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

WORST = struct.Struct("<dd")


def watch(path: Path) -> None:
    """Measure every callback of every loop of this process from now on."""
    path.write_bytes(WORST.pack(0.0, 0.0))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), WORST.size)
    run = asyncio.Handle._run  # noqa: SLF001  # every callback

    def watched(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        worst, again = WORST.unpack_from(shared)
        if again or took > worst:
            WORST.pack_into(shared, 0, took, 0.0)

    asyncio.Handle._run = watched  # type: ignore[assignment,method-assign]  # noqa: SLF001  # every callback


def worst_seconds(path: Path) -> float:
    """The longest stretch since the last time that this was called."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), WORST.size) as shared:
        worst, _ = WORST.unpack_from(shared)
        WORST.pack_into(shared, 0, 0.0, 1.0)
    return float(worst)


if __name__ == "__main__":
    from lorogo_cli import main

    sys.modules["uvloop"] = None  # type: ignore[assignment]  # its handles cannot be measured
    watch(Path(sys.argv[1]))
    sys.argv = ["lorogo", "serve", *sys.argv[2:]]
    main()

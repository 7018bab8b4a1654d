"""The beginning of every load process: make the load, do what it is told, end when stdin does."""

import asyncio
import importlib
import json
import sys
import time
from typing import Any, Protocol, Self

from lorogo_protocol.errors import LorogoError

_LINE_BYTES_MAX = 64 * 1024 * 1024


class Load(Protocol):
    """What a module of this package has under this name."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


async def main(kind: str) -> None:
    """Live as long as stdin does."""
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    make = importlib.import_module(f"lorogo_bench.loads.{kind}").Load
    first = await reader.readline()
    if not first:
        return
    load: Load = make(**json.loads(first)["order"])
    try:
        async with load:
            _say({"told": {}})
            while line := await reader.readline():
                _say(await _done(load, json.loads(line)))
    except (LorogoError, OSError) as error:
        _say({"failed": f"{type(error).__name__}: {error}"})


async def _done(load: Load, message: dict[str, Any]) -> dict[str, Any]:
    """Do one thing, within its time."""
    verb = getattr(load, f"do_{message['do']}")
    began, busy = time.perf_counter(), time.process_time()
    try:
        async with asyncio.timeout(message["seconds"]):
            told = await verb(**message["with"])
    except TimeoutError:
        return {"failed": f"{message['do']} was not done within {message['seconds']:g} s"}
    except (LorogoError, AssertionError) as error:
        return {"failed": f"{message['do']}: {type(error).__name__}: {error}"}
    spent, cpu = time.perf_counter() - began, time.process_time() - busy
    return {"told": told, "seconds": spent, "cpu_seconds": cpu}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main(sys.argv[1]))
    else:
        uvloop.run(main(sys.argv[1]))

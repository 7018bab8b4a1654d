"""Entry point of every load process: create the load, run its commands, exit when stdin ends."""

import asyncio
import importlib
import json
import sys
import time
from typing import Any, Protocol, Self

from lorogo_protocol.errors import LorogoError

_LINE_BYTES_MAX = 64 * 1024 * 1024


class Load(Protocol):
    """The interface of the class in each module of this package that is a kind of load."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


def class_of(kind: str) -> type[Any]:
    """Return the class of a kind: `EditorLoad` for `editor`, `RawCrowdLoad` for `raw.crowd`."""
    name = "".join(part.title() for part in kind.split(".")) + "Load"
    found: type[Any] = getattr(importlib.import_module(f"lorogo_bench.loads.{kind}"), name)
    return found


async def main(kind: str) -> None:
    """Run commands until stdin ends."""
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    make = class_of(kind)
    first = await reader.readline()
    if not first:
        return
    load: Load = make(**json.loads(first)["order"])
    try:
        async with load:
            _reply({"result": {}})
            while line := await reader.readline():
                _reply(await _done(load, json.loads(line)))
    except (LorogoError, OSError) as error:
        _reply({"failed": f"{type(error).__name__}: {error}"})


async def _done(load: Load, message: dict[str, Any]) -> dict[str, Any]:
    """Run one command within its time limit."""
    verb = getattr(load, f"do_{message['do']}")
    began, busy = time.perf_counter(), time.process_time()
    try:
        async with asyncio.timeout(message["seconds"]):
            result = await verb(**message["with"])
    except TimeoutError:
        return {"failed": f"{message['do']} was not done within {message['seconds']:g} s"}
    except (LorogoError, AssertionError) as error:
        return {"failed": f"{message['do']}: {type(error).__name__}: {error}"}
    spent, cpu = time.perf_counter() - began, time.process_time() - busy
    return {"result": result, "seconds": spent, "cpu_seconds": cpu}


def _reply(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main(sys.argv[1]))
    else:
        uvloop.run(main(sys.argv[1]))

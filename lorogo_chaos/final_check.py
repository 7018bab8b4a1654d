"""The final content of every document, read by a new client."""

import asyncio
import time
from collections.abc import Sequence

import lorogo_client
from lorogo_chaos.fleet.event_log import MARKS
from lorogo_chaos.fleet.writer import digest
from lorogo_chaos.verdict import FinalContents
from lorogo_client import Client, ClientSettings
from lorogo_protocol.errors import LorogoError
from lorogo_transport.stores.catalogue import rows

_AT_ONCE = 8
_OPEN_SECONDS = 10.0
_AGAIN_SECONDS = 0.3


async def read_all(url: str, documents: Sequence[str], seconds: float) -> dict[str, FinalContents | None]:
    """Read every document with a new client; None for those not served within the time."""
    finals: dict[str, FinalContents | None] = dict.fromkeys(documents)
    gate = asyncio.Semaphore(_AT_ONCE)
    try:
        async with asyncio.timeout(seconds):
            client = await _connected(url)
            try:
                async with asyncio.TaskGroup() as group:
                    for document in documents:
                        group.create_task(_read(client, document, gate, finals))
            finally:
                await client.close()
    except TimeoutError:
        pass  # return the documents read so far
    return finals


async def failed(url: str, documents: Sequence[str], seconds: float) -> list[str]:
    """Return the documents in the state ERROR."""
    async with asyncio.timeout(seconds):
        client = await _connected(url)
        try:
            found = await rows(client.transport, now_ns=time.time_ns())
        finally:
            await client.close()
    errors = {row["document"] for row in found if row["state"] == "ERROR"}
    return [document for document in documents if document in errors]


async def _connected(url: str) -> Client:
    while True:
        try:
            return await lorogo_client.connect(
                url, settings=ClientSettings(close_seconds=0.5), name="chaos-audit"
            )
        except LorogoError:
            await asyncio.sleep(_AGAIN_SECONDS)


async def _read(
    client: Client, document: str, gate: asyncio.Semaphore, finals: dict[str, FinalContents | None]
) -> None:
    while finals[document] is None:
        async with gate:
            try:
                async with client.open(document, read_only=True, timeout=_OPEN_SECONDS) as session:
                    marks = session.doc.get_list(MARKS).to_vec()
                    finals[document] = FinalContents(tuple(map(str, marks)), digest(session.doc))
            except LorogoError:
                await asyncio.sleep(_AGAIN_SECONDS)

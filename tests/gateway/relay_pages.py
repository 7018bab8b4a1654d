"""Pages for tests: a LoroDoc that is fed by a relay alone, as a browser's is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from loro import ExportMode, LoroDoc, VersionVector

from lorogo_client import Client, LorogoError, Receipt
from lorogo_gateway.relay.relays import Relays
from lorogo_gateway.relay.subscriber import Joined, Listener, Subscriber
from tests.client.support import eventually

_relays: WeakKeyDictionary[Client, Relays] = WeakKeyDictionary()


def relays_of(client: Client) -> Relays:
    """The relays of a client, as a gateway has them."""
    return _relays.setdefault(client, Relays(client))


@asynccontextmanager
async def relayed(
    client: Client, document_id: str, listener: Listener, *, token: str = ""
) -> AsyncIterator[Subscriber]:
    """A subscriber that leaves at the end."""
    relays = relays_of(client)
    subscriber = await relays.enter(document_id, listener, token)
    try:
        yield subscriber
    finally:
        await relays.leave(subscriber)


class Page:
    """A listener that imports what it hears."""

    def __init__(self, name: str = "p", peer: int | None = None) -> None:
        self.name = name
        self.doc = LoroDoc()
        if peer is not None:
            self.doc.peer_id = peer
        self.heard: list[bytes] = []
        self.presence: list[bytes] = []
        self.told: list[str] = []
        self.ended: LorogoError | None = None
        self.member: Subscriber

    def accepted(self, payload: bytes) -> None:
        self.heard.append(payload)
        self.doc.import_(payload)

    def aware(self, data: bytes) -> None:
        self.presence.append(data)

    def rejoin(self, why: str) -> None:
        self.told.append(why)

    def gone(self, error: LorogoError) -> None:
        self.ended = error

    # --- what a browser does

    @property
    def text(self) -> str:
        return str(self.doc.get_text("t").to_string())

    async def join(self, timeout: float = 10.0) -> Joined:
        """Join with what is here, take what is lacking, and send what the owner lacks."""
        joined = await self.member.join(self.doc.oplog_vv.encode(), timeout)
        if joined.payload:
            self.doc.import_(joined.payload)
        theirs = VersionVector.decode(joined.vector)
        if not theirs.includes_vv(self.doc.oplog_vv):
            self.member.send(self.doc.export(ExportMode.Updates(theirs)))
        return joined

    def edit(self, text: str) -> bytes:
        before = self.doc.oplog_vv
        body = self.doc.get_text("t")
        body.insert(body.len_unicode, text)
        self.doc.commit()
        return self.doc.export(ExportMode.Updates(before))

    def type(self, text: str) -> "asyncio.Future[Receipt]":
        return self.member.send(self.edit(text))


def foreign(text: str) -> bytes:
    """An update that needs nothing."""
    page = Page()
    return page.edit(text)


async def equal(*pages: Page) -> None:
    """Until all show the same."""
    await eventually(lambda: all(page.text == pages[0].text for page in pages))

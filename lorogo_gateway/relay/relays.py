"""The relays of a gateway: one per document with subscribers, whatever the number of connections."""

from lorogo_client import Client
from lorogo_client.context import ClientContext
from lorogo_gateway.relay.relay import Relay
from lorogo_gateway.relay.subscriber import Listener, Subscriber
from lorogo_protocol.access.grants import Access
from lorogo_protocol.ids import check_document_id


class Relays:
    """All relays on one client."""

    def __init__(self, client: Client) -> None:
        self._pool = client.pool
        self._relays: dict[str, Relay] = {}
        self._contexts: dict[Subscriber, tuple[Relay, ClientContext]] = {}

    async def enter(self, document_id: str, listener: Listener, token: str = "") -> Subscriber:
        """Return a subscriber of the document; its `join()` starts the callbacks. Does not wait for an owner.

        `token`: the subscriber's own, sent with its requests to the owner; the caller checks what it grants.
        Raises InvalidDocumentId, SessionClosed, NotAllowed.
        """
        check_document_id(document_id)
        self._pool.token_provider.require(document_id, Access.READ)
        context = await self._pool.take(document_id)
        subscriber: Subscriber | None = None
        try:
            relay = self._relays.get(document_id)
            if relay is None or relay.over is not None:
                relay = self._relays[document_id] = Relay(context, document_id)
            try:
                subscriber = await relay.enter(listener, token)
                self._contexts[subscriber] = (relay, context)
            finally:
                await self._close_empty(relay)
        finally:
            if subscriber is None:
                self._pool.give_back(document_id, context)
        return subscriber

    async def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber, and close its relay if it was the last one."""
        entry = self._contexts.pop(subscriber, None)
        if entry is not None:
            relay, context = entry
            await relay.leave(subscriber)
            await self._close_empty(relay)
            self._pool.give_back(relay.document_id, context)

    async def _close_empty(self, relay: Relay) -> None:
        if not relay.members:
            if self._relays.get(relay.document_id) is relay:
                del self._relays[relay.document_id]
            await relay.close()

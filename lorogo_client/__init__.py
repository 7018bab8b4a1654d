"""The SDK: `connect()` returns a client, and an open document is a LoroDoc that saves itself.

    async with lorogo_client.connect("nats://127.0.0.1:4222") as client:
        async with client.open("minutes-2026-11") as session:
            session.doc.get_text("body").insert(0, "hello")
            session.commit()
            receipt = await session.flush()

With `connect(url, token=...)` the client may do what the token grants; the token is text, or an async
function that returns a fresh one. `lorogo_client.tokens` mints tokens. With `connect(url,
store="my-app.store")` documents open offline and edits survive a crash of the app; `lorogo_client.store`
reads such a store. This module exports the whole public API; docs/PROTOCOL.md describes the messages.
"""

from lorogo_client import tokens
from lorogo_client.api import DocumentApi
from lorogo_client.connection import Client, connect
from lorogo_client.errors import (
    ClientError,
    DocumentDeleted,
    DocumentFailed,
    FeedUnavailable,
    InvalidMoment,
    NoSuchDocument,
    NotAllowed,
    NotAuthorized,
    NotServed,
    NotStored,
    OfflineBufferFull,
    ReadOnly,
    Refused,
    ServerFull,
    SessionClosed,
    StorageFull,
    StoreDamaged,
    StoreFailed,
    StoreFull,
    StoreLocked,
    Timeout,
    TokenExpired,
    TooLargeUpdate,
    TooManyDocuments,
    Unsaved,
    UpdateRefused,
)
from lorogo_client.feed import (
    Deleted,
    Erased,
    FeedItem,
    FeedPosition,
    Gap,
    InvalidPosition,
    Restored,
    Update,
    UpdateFeed,
)
from lorogo_client.session.kept_presence import KeptPresence
from lorogo_client.session.notifications import Change, Lagged, Rebased, State
from lorogo_client.session.presence import Presence, PresenceTooLarge
from lorogo_client.session.receipt import Receipt
from lorogo_client.session.session import Session
from lorogo_client.settings import ClientSettings
from lorogo_client.store.stored_document import StoredDocument
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.errors import HistoryTrimmed, InvalidDocumentId, InvalidUpdate, LorogoError
from lorogo_transport.errors import Disconnected, TransportError, Unreachable

__all__ = [
    "Change",
    "Client",
    "ClientError",
    "ClientSettings",
    "Deleted",
    "Disconnected",
    "DocumentApi",
    "DocumentDeleted",
    "DocumentFailed",
    "Erased",
    "FeedItem",
    "FeedPosition",
    "FeedUnavailable",
    "Gap",
    "HistoryTrimmed",
    "InvalidDocumentId",
    "InvalidMoment",
    "InvalidPosition",
    "InvalidUpdate",
    "KeptPresence",
    "Lagged",
    "LorogoError",
    "NoSuchDocument",
    "NotAllowed",
    "NotAuthorized",
    "NotServed",
    "NotStored",
    "OfflineBufferFull",
    "Presence",
    "PresenceTooLarge",
    "ReadOnly",
    "Rebased",
    "Receipt",
    "Refused",
    "Restored",
    "ServerFull",
    "Session",
    "SessionClosed",
    "State",
    "StorageFull",
    "StoreDamaged",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "StoredDocument",
    "Timeout",
    "TokenExpired",
    "TokenRefused",
    "TooLargeUpdate",
    "TooManyDocuments",
    "TransportError",
    "Unreachable",
    "Unsaved",
    "Update",
    "UpdateFeed",
    "UpdateRefused",
    "connect",
    "tokens",
]

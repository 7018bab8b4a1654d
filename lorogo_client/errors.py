"""Errors that an app which uses the client may have to handle.

    LorogoError
    ├── ClientError
    │   ├── DocumentFailed      servers could not load it; an operator must reset it (trace_id).
    │   ├── DocumentDeleted     it was deleted; only `restore` brings it back.
    │   ├── NoSuchDocument      it does not exist, and this call does not create it.
    │   ├── UpdateRefused       the owner refused an update for good (log_id, reason).
    │   │   └── TooLargeUpdate  because it has too many bytes.
    │   ├── NotAllowed          the token does not grant this; nothing was done.
    │   ├── TooManyDocuments    too many connections for documents that the token grants only by a pattern.
    │   ├── ReadOnly            an edit in a session that is read-only.
    │   ├── OfflineBufferFull   the buffer of unsent edits is full; the edit stays open in the document.
    │   ├── NotServed           retriable: no server took the document in time.
    │   │   └── ServerFull      retriable: the disk of the only server is full.
    │   ├── Timeout             retriable: it took longer than the caller allowed.
    │   ├── Unsaved             a session was left, and these edits have no ACK.
    │   ├── FeedUnavailable     a server keeps no journal, so a feed would omit its updates.
    │   ├── StoreFailed         the local store cannot be used, or has stopped; edits go on in memory.
    │   │   ├── StoreFull       retriable: its disk is full; it resumes when there is space.
    │   │   ├── StoreLocked     retriable: another process has it.
    │   │   └── StoreDamaged    this document's copy is incomplete; only the server can complete it.
    │   ├── NotStored           retriable: offline, and the store has no copy of this document.
    │   ├── InvalidMoment       the text is neither a time nor a version (lorogo_client.versions).
    │   └── SessionClosed       the session or its client is closed.
    ├── TokenRefused            the text is not a valid token (lorogo_protocol.access.tokens).
    ├── NotAuthorized           NATS refuses the token, seed or password (lorogo_transport.errors).
    │   └── TokenExpired        the token has expired; edits are kept.
    ├── Refused                 the owner answered a call with a reason (lorogo_protocol.messages.calls).
    └── StorageFull             the stream is full (lorogo_transport.errors).

`retriable` is a fact of the class: the same call may succeed later without a change.
"""

from typing import ClassVar

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Failed
from lorogo_transport.errors import NotAuthorized, StorageFull
from lorogo_transport.stores.catalogue import DocumentSummary

__all__ = [
    "ClientError",
    "DocumentDeleted",
    "DocumentFailed",
    "FeedUnavailable",
    "InvalidMoment",
    "NoSuchDocument",
    "NotAllowed",
    "NotAuthorized",
    "NotServed",
    "NotStored",
    "OfflineBufferFull",
    "ReadOnly",
    "Refused",
    "ServerFull",
    "SessionClosed",
    "StorageFull",
    "StoreDamaged",
    "StoreFailed",
    "StoreFull",
    "StoreLocked",
    "Timeout",
    "TokenExpired",
    "TooLargeUpdate",
    "TooManyDocuments",
    "Unsaved",
    "UpdateRefused",
]


class ClientError(LorogoError):
    """An error that the client itself raises."""

    code = "client"


class DocumentFailed(ClientError):
    """The document's status is ERROR: servers failed to load it too often."""

    code = "document-failed"

    def __init__(self, document_id: str, trace_id: str) -> None:
        super().__init__(
            f"servers failed to load {document_id} (trace {trace_id}); "
            f"remove the cause, then run: lorogo reset {document_id}"
        )
        self.document_id = document_id
        self.trace_id = trace_id


class DocumentDeleted(ClientError):
    """The document was deleted; `erased`: for good, it cannot be restored."""

    code = "deleted"

    def __init__(self, document_id: str, *, erased: bool = False) -> None:
        back = f"deleted; lorogo doc restore {document_id} brings it back"
        super().__init__(f"{document_id} was {'erased for good' if erased else back}")
        self.document_id = document_id
        self.erased = erased


class NoSuchDocument(ClientError):
    """The document does not exist, and the call does not create it. Nothing was written."""

    code = "not-found"

    def __init__(self, document_id: str) -> None:
        super().__init__(f"there is no document {document_id!r}; its first edit creates it")
        self.document_id = document_id


class UpdateRefused(ClientError):
    """The owner refused this update for good; its edits stay in this replica only."""

    code = "update-refused"

    def __init__(self, log_id: str, reason: Reason, message: str) -> None:
        which = f"update {log_id}" if log_id else "the update"
        super().__init__(f"{which} was refused ({reason.value}): {message}")
        self.log_id = log_id
        self.reason = reason
        self.message = message
        self.code = reason.value


class TooLargeUpdate(UpdateRefused):
    """The update has more bytes than the owner accepts."""


class NotAllowed(ClientError):
    """The token does not grant this. Raised before anything is sent, or after the owner denied it."""

    code = "permission-denied"

    def __init__(self, problem: str, *, document_id: str = "") -> None:
        super().__init__(problem)
        self.document_id = document_id


class TooManyDocuments(ClientError):
    """Too many documents are open that the token grants only by a pattern: each needs a connection."""

    code = "too-many-documents"
    retriable: ClassVar[bool] = True

    def __init__(self, documents_open_max: int) -> None:
        super().__init__(
            f"{documents_open_max} documents are open that the token only grants by a pattern, each on a"
            " connection of its own: close some, name them in the token, raise documents_open_max, or go"
            " through a gateway"
        )


class TokenExpired(NotAuthorized):
    """The token has expired. Edits are kept, unsent, until a fresh token arrives."""

    code = "token-expired"


class ReadOnly(ClientError):
    """The session is read-only: opened so, or by the token's access. Its edits are dropped, not sent."""

    code = "read-only"


class OfflineBufferFull(ClientError):
    """The buffer of unsent edits is full. Nothing is lost: the edit stays open, commit again later."""

    code = "offline-buffer-full"
    retriable: ClassVar[bool] = True


class NotServed(ClientError):
    """No server acquired the document in time."""

    code = "not-served"
    retriable: ClassVar[bool] = True
    _remedy: ClassVar[str] = "start a server with: lorogo serve"

    def __init__(self, document_id: str, why: str) -> None:
        super().__init__(f"no server serves {document_id}: {why}; {self._remedy}")
        self.document_id = document_id


class ServerFull(NotServed):
    """No server acquires the document because the server's disk is full."""

    _remedy = "edits are kept, and sent when the disk has space"


class Timeout(ClientError):
    """The call took longer than allowed; it may still take effect."""

    code = "timeout"
    retriable: ClassVar[bool] = True


class Unsaved(ClientError):
    """The session was left with edits that no server has confirmed."""

    code = "unsaved"

    def __init__(self, document_id: str, updates: int, why: str) -> None:
        super().__init__(f"{document_id} was left with {updates} update(s) not ACKed: {why}")
        self.document_id = document_id
        self.updates = updates


class FeedUnavailable(ClientError):
    """A server keeps no journal, so a feed cannot deliver the updates that it accepts."""

    code = "feed-unavailable"

    def __init__(self, server_id: str, durability: str) -> None:
        super().__init__(
            f"server {server_id} keeps no journal (durability {durability or 'unknown'}), so a feed would"
            " omit its updates; run the server with durability 'journal'"
        )
        self.server_id = server_id
        self.durability = durability


class StoreFailed(ClientError):
    """The local store cannot be used: it stores nothing more. Edits stay in memory."""

    code = "store-failed"


class StoreFull(StoreFailed):
    """The disk of the local store is full. Edits stay in memory; the store resumes when there is space."""

    code = "store-full"
    retriable: ClassVar[bool] = True

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the disk of the store {path} is full, edits are only in memory until they are ACKed;"
            f" free disk space, and the store resumes: {why}"
        )
        self.path = path


class StoreLocked(StoreFailed):
    """Another process has the store open."""

    code = "store-locked"
    retriable: ClassVar[bool] = True

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the store {path} is open in another process or client; close that one, or use another store"
        )
        self.path = path


class StoreDamaged(StoreFailed):
    """Some of the document's records in the store are lost."""

    code = "store-damaged"

    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"the copy of {document_id} in the store is damaged; it opens when a server is reachable,"
            " with the unsaved edits that could be read"
        )
        self.document_id = document_id


class NotStored(ClientError):
    """There is no connection to NATS, and the store has no copy of the document."""

    code = "not-stored"
    retriable: ClassVar[bool] = True

    def __init__(self, document_id: str) -> None:
        super().__init__(
            f"there is no connection to NATS, and {document_id} is not in the store;"
            " open(..., create=True) opens an empty document that is merged later"
        )
        self.document_id = document_id


class SessionClosed(ClientError):
    """The session or its client is closed."""

    code = "session-closed"


class InvalidMoment(ClientError):
    """The text is neither a time nor a version of a document."""

    code = "invalid-moment"


def check_stored(summary: DocumentSummary, *, deleted: bool = False) -> None:
    """Raise DocumentFailed for status ERROR, and DocumentDeleted unless `deleted` is allowed."""
    if summary.status is not None and isinstance(summary.status.status, Failed):
        raise DocumentFailed(summary.document_id, summary.status.status.trace_id)
    if summary.deleted and not deleted:
        raise DocumentDeleted(summary.document_id, erased=summary.erased)

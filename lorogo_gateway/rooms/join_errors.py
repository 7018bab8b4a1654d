"""JoinErrors for failed joins. Pure."""

from lorogo_client import (
    DocumentDeleted,
    DocumentFailed,
    InvalidDocumentId,
    LorogoError,
    NotAllowed,
    Refused,
)
from lorogo_gateway.frames import Crdt, JoinError, JoinErrorCode
from lorogo_gateway.relay.errors import InvalidVersion
from lorogo_gateway.rooms.membership import RoomNotFound
from lorogo_protocol.errors import HistoryTrimmed
from lorogo_protocol.messages.reasons import Reason

_APP_CODES: tuple[tuple[type[LorogoError], str], ...] = (
    (InvalidDocumentId, "invalid_document_id"),
    (DocumentDeleted, "deleted"),
    (DocumentFailed, "document_failed"),
    (HistoryTrimmed, "history_trimmed"),
    (RoomNotFound, "not_found"),
)


def auth_failed(crdt: Crdt, room: str, error: LorogoError) -> JoinError:
    """Return the JoinError for a missing, invalid or insufficient token; its message begins with the code."""
    return JoinError(crdt, room, JoinErrorCode.AUTH_FAILED, f"{error.code}: {error}")


def refused(crdt: Crdt, room: str, app_code: str, message: str) -> JoinError:
    """Return a JoinError with one of lorogo's app codes."""
    return JoinError(crdt, room, JoinErrorCode.APP_ERROR, message, app_code=app_code)


def answer(crdt: Crdt, room: str, error: LorogoError, vector: bytes = b"") -> JoinError | None:
    """Return the JoinError for a permanent error; None for a temporary one.

    A client forgets a room whose rejoin gets a JoinError, so for a temporary error the connection is closed.
    """
    if isinstance(error, InvalidVersion):
        return JoinError(crdt, room, JoinErrorCode.VERSION_UNKNOWN, str(error), version=vector)
    if isinstance(error, Refused) and error.reason is Reason.DELETED:
        return refused(crdt, room, "deleted", str(error))
    if isinstance(error, NotAllowed):  # from the owner, which verifies the token again
        return auth_failed(crdt, room, error)
    for kind, app_code in _APP_CODES:
        if isinstance(error, kind):
            return refused(crdt, room, app_code, str(error))
    return None

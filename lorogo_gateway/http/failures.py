"""Mapping of lorogo's errors to HTTP statuses: one table for error classes, one for the owner's reasons."""

from typing import Final

from lorogo_client import errors as ours
from lorogo_client.feed import InvalidPosition
from lorogo_gateway.auth import UNCHECKED, AccessDenied, NotSignedIn
from lorogo_gateway.problems import HttpProblem
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.errors import (
    CrdtError,
    HistoryTrimmed,
    InvalidDocumentId,
    InvalidUpdate,
    LorogoError,
    MalformedMessage,
)
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.wire import LaterWire
from lorogo_transport import errors as transport
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotReplaced

#: by the owner's reason for refusing a call or an update
REASONS: Final[dict[Reason, int]] = {
    Reason.DIGEST_MISMATCH: 503,
    Reason.CHUNK_MISSING: 503,
    Reason.TOO_LARGE: 413,
    Reason.INVALID_UPDATE: 422,
    Reason.MISSING_DEPENDENCIES: 409,
    Reason.HISTORY_TRIMMED: 409,
    Reason.OUTDATED: 409,
    Reason.PEER_REUSED: 409,
    Reason.DELETED: 410,
    Reason.NOT_OWNER: 503,
    Reason.STORAGE_FULL: 507,
    Reason.DOCUMENT_FULL: 413,
    Reason.RATE_LIMITED: 429,
    Reason.READ_ONLY: 403,
    Reason.PERMISSION_DENIED: 403,
    Reason.INVALID_REQUEST: 400,
    Reason.INVALID_DOCUMENT_ID: 400,
    Reason.UNKNOWN_VERB: 501,
    Reason.NOT_FOUND: 404,
    Reason.CONFLICT: 409,
    Reason.PATCH_FAILED: 422,
    Reason.UNKNOWN_VERSION: 404,
    Reason.BUSY: 503,
    Reason.FAILED: 503,
}

#: by error class; the first match wins, so a class must precede its base
ERRORS: Final[tuple[tuple[type[LorogoError], int], ...]] = (
    (NotSignedIn, 401),
    (TokenRefused, 401),
    (AccessDenied, 403),
    (ours.NotAllowed, 403),
    (InvalidDocumentId, 400),
    (InvalidPosition, 400),
    (ours.InvalidMoment, 400),
    (ours.DocumentDeleted, 410),
    (ours.NoSuchDocument, 404),
    (ours.DocumentFailed, 503),
    (ours.ReadOnly, 403),
    (ours.OfflineBufferFull, 503),
    (ours.NotServed, 503),
    (ours.Timeout, 504),
    (ours.Unsaved, 503),
    (ours.FeedUnavailable, 503),
    (ours.StoreLocked, 503),
    (ours.StoreFailed, 503),
    (ours.NotStored, 503),
    (ours.SessionClosed, 503),
    (transport.Disconnected, 503),
    (transport.RequestTimeout, 504),
    (transport.NoResponders, 503),
    (transport.OutcomeUnknown, 504),
    (transport.WrongLastSequence, 409),
    (transport.StorageFull, 507),
    (transport.TooLarge, 413),
    (transport.StreamMissing, 503),
    (transport.StreamMismatch, 503),
    (transport.PermissionDenied, 403),
    (transport.NotAuthorized, 503),
    (transport.Unreachable, 503),
    (SnapshotReplaced, 503),
    (SnapshotDamaged, 500),
    (transport.TransportError, 503),
    (LaterWire, 502),
    (MalformedMessage, 502),  # from a server: requests are validated before
    (HistoryTrimmed, 409),
    (InvalidUpdate, 422),
    (CrdtError, 500),
)

#: Retry-After in seconds, by status
_AGAIN: Final = {429: 1, 503: 2}
#: WWW-Authenticate (RFC 6750)
_CHALLENGE: Final = 'Bearer realm="lorogo"'
#: 503 without Retry-After: the same request fails again until an operator acts
_NOT_AGAIN: Final = (ours.DocumentFailed, ours.FeedUnavailable, ours.StoreFailed, transport.StreamMismatch)


def problem_of(error: LorogoError) -> HttpProblem | None:
    """Return the error as a problem; None if it is in no table, which is a bug."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, ours.Refused | ours.UpdateRefused):
        return _problem(REASONS[error.reason], error)
    if isinstance(error, transport.StreamMissing):
        detail = f"this NATS has no lorogo streams ({error}): start a server with `lorogo serve`"
        return HttpProblem(503, error.code, detail, headers={"Retry-After": str(_AGAIN[503])})
    if isinstance(error, TokenRefused) and error.code == UNCHECKED:
        return _problem(503, error)
    for kind, status in ERRORS:
        if isinstance(error, kind):
            return _problem(status, error)
    return None


def _problem(status: int, error: LorogoError) -> HttpProblem:
    headers = {}
    if status in _AGAIN and not isinstance(error, _NOT_AGAIN):
        headers["Retry-After"] = str(_AGAIN[status])
    if status == 401:
        wrong = "" if error.code == "token-missing" else ', error="invalid_token"'
        headers["WWW-Authenticate"] = _CHALLENGE + wrong
    return HttpProblem(status, error.code, str(error), headers=headers)

"""Every error of lorogo as an answer, row by row."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
import structlog
from starlette.requests import Request
from starlette.responses import Response

import lorogo_client
import lorogo_protocol
import lorogo_transport
from lorogo_client import errors as ours
from lorogo_client.feed import InvalidPosition
from lorogo_client.versions import TooOldMoment
from lorogo_gateway.auth import AccessDenied, NotSignedIn
from lorogo_gateway.auth.needs import NoToken
from lorogo_gateway.http.failures import ERRORS, REASONS, problem_of
from lorogo_gateway.http.operations import Operation, ResponseSpec
from lorogo_gateway.problems import HttpProblem
from lorogo_protocol.access.tokens import TokenRefused
from lorogo_protocol.errors import InvalidDocumentId, LorogoError, MalformedMessage
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.wire import LaterWire
from lorogo_transport import errors as transport
from lorogo_transport.stores.snapshots import SnapshotDamaged, SnapshotReplaced
from tests.gateway.http_support import http_of, problem

ROWS: list[tuple[LorogoError, int, str, bool]] = [  # status, code, whether Retry-After is there
    (InvalidDocumentId("-", "x"), 400, "invalid-document-id", False),
    (InvalidPosition("x"), 400, "invalid-position", False),
    (ours.InvalidMoment("x"), 400, "invalid-moment", False),
    (TooOldMoment("x"), 400, "invalid-moment", False),
    (ours.DocumentDeleted("doc"), 410, "deleted", False),
    (ours.NoSuchDocument("doc"), 404, "not-found", False),
    (ours.DocumentFailed("doc", "trace"), 503, "document-failed", False),
    (ours.UpdateRefused("log", Reason.INVALID_UPDATE, "x"), 422, "invalid-update", False),
    (ours.TooLargeUpdate("log", Reason.TOO_LARGE, "x"), 413, "too-large", False),
    (ours.ReadOnly("x"), 403, "read-only", False),
    (ours.OfflineBufferFull("x"), 503, "offline-buffer-full", True),
    (ours.NotServed("doc", "x"), 503, "not-served", True),
    (ours.Timeout("x"), 504, "timeout", False),
    (ours.Unsaved("doc", 1, "x"), 503, "unsaved", True),
    (ours.FeedUnavailable("server", "stream"), 503, "feed-unavailable", False),
    (ours.StoreFailed("x"), 503, "store-failed", False),
    (ours.StoreLocked("x"), 503, "store-locked", False),
    (ours.StoreDamaged("x"), 503, "store-damaged", False),
    (ours.NotStored("x"), 503, "not-stored", True),
    (ours.SessionClosed("x"), 503, "session-closed", True),
    (transport.Disconnected("x"), 503, "disconnected", True),
    (transport.RequestTimeout("x"), 504, "timeout", False),
    (transport.NoResponders("x"), 503, "no-responders", True),
    (transport.OutcomeUnknown("x"), 504, "outcome-unknown", False),
    (transport.WrongLastSequence("x"), 409, "wrong-last-sequence", False),
    (transport.StorageFull("x"), 507, "storage-full", False),
    (transport.TooLarge("x"), 413, "too-large", False),
    (transport.StreamMissing("x"), 503, "stream-missing", True),
    (transport.StreamMismatch("x", []), 503, "stream-mismatch", False),
    (transport.Unreachable("x"), 503, "unreachable", True),
    (transport.TransportError("x"), 503, "transport", True),
    (SnapshotReplaced("x"), 503, "snapshot-replaced", True),
    (SnapshotDamaged("doc", "x"), 500, "snapshot-damaged", False),
    (LaterWire("x"), 502, "later-wire", False),
    (MalformedMessage("x"), 502, "malformed-message", False),
    (HttpProblem(418, "teapot", "x"), 418, "teapot", False),
    (NotSignedIn("token-missing", "x"), 401, "token-missing", False),
    (TokenRefused("token-expired", "x"), 401, "token-expired", False),
    (TokenRefused("token-unchecked", "x"), 503, "token-unchecked", True),
    (AccessDenied("x"), 403, "permission-denied", False),
    (ours.NotAllowed("x"), 403, "permission-denied", False),
    (Refused(Reason.BUSY, "x"), 503, "busy", True),
    (Refused(Reason.RATE_LIMITED, "x"), 429, "rate-limited", True),
    (Refused(Reason.DELETED, "x"), 410, "deleted", False),
]
STATUSES = {
    "digest-mismatch": 503,
    "chunk-missing": 503,
    "too-large": 413,
    "invalid-update": 422,
    "missing-dependencies": 409,
    "history-trimmed": 409,
    "outdated": 409,
    "peer-reused": 409,
    "deleted": 410,
    "not-owner": 503,
    "storage-full": 507,
    "document-full": 413,
    "rate-limited": 429,
    "read-only": 403,
    "permission-denied": 403,
    "invalid-request": 400,
    "invalid-document-id": 400,
    "unknown-verb": 501,
    "not-found": 404,
    "conflict": 409,
    "patch-failed": 422,
    "unknown-version": 404,
    "busy": 503,
    "failed": 503,
}


#: the one sentence of lorogo: the name of a stream does not help a reader who has never run a server
NO_SERVER_YET = (
    "this NATS has no lorogo streams (stream 'x' does not exist): start a server with `lorogo serve`"
)


def failing(error: BaseException) -> Operation:
    async def handler(_: Request) -> Response:
        raise error

    return Operation(
        "POST", "/v1/fail", "fail", "Fails.", handler, {200: ResponseSpec("Never.")}, need=NoToken()
    )


@pytest.mark.parametrize(("error", "status", "code", "again"), ROWS, ids=lambda row: type(row).__name__)
async def test_an_error_is_a_problem(error: LorogoError, status: int, code: str, again: bool) -> None:
    """Each has its status, keeps its code and (but one) its sentence; Retry-After if it may pass."""
    async with http_of([failing(error)]) as http:
        response = await http.post("/v1/fail")
    expected = NO_SERVER_YET if isinstance(error, transport.StreamMissing) else str(error)
    assert problem(response, status, code)["detail"] == expected
    assert ("retry-after" in response.headers) is again


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_status(reason: Reason) -> None:
    """The problem keeps the reason of an owner's refusal as its code."""
    found = problem_of(Refused(reason, "why"))
    assert found is not None
    assert (found.status, found.code, str(found)) == (STATUSES[reason.value], reason.value, "why")
    assert REASONS[reason] == found.status


def _errors(kind: type[LorogoError] = LorogoError) -> Iterator[type[LorogoError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _errors(one)


def test_no_error_is_without_a_row() -> None:
    """Whatever the client can raise is in the table; a new error must be put there."""
    for package in (lorogo_client, lorogo_protocol, lorogo_transport):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    listed = (*(kind for kind, _ in ERRORS), Refused, ours.UpdateRefused)
    below = ("lorogo_client", "lorogo_protocol", "lorogo_transport")
    missing = {
        kind.__qualname__
        for kind in _errors()
        if kind.__module__.startswith(below)
        and not issubclass(kind, listed)
        and not kind.__name__.startswith("_")
    }
    assert missing <= NEVER


#: base classes that no code raises, and errors that the raising module catches
NEVER = {
    "InvalidGrants",
    "InvalidKey",
    "InvalidSeed",
    "SecretUnusable",
    "TooManyDocuments",
    "ClientError",
    "MalformedRecord",
    "UnsupportedRecord",
    "PresenceTooLarge",
    "UnreadableRecord",
}


def test_a_class_stands_before_its_base() -> None:
    """No row of the table hides another."""
    kinds = [kind for kind, _ in ERRORS]
    for at, kind in enumerate(kinds):
        assert not any(issubclass(kind, before) for before in kinds[:at]), kind


class _Unlisted(LorogoError):
    code = "secret"


@pytest.mark.parametrize("error", [RuntimeError("a secret"), _Unlisted("a secret"), TimeoutError("a secret")])
async def test_an_unexpected_error_is_logged_and_not_sent(error: Exception) -> None:
    """The response to an unexpected error is 500 without the error's text; the log has the text."""
    with structlog.testing.capture_logs() as logged:
        async with http_of([failing(error)]) as http:
            response = await http.post("/v1/fail")
    problem(response, 500, "internal")
    assert "secret" not in response.text
    assert [entry["path"] for entry in logged] == ["/v1/fail"]
    assert logged[0]["exc_info"]

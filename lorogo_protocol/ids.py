"""Validates document ids, log ids, operation ids and inboxes.

A document id is a NATS subject token, a KV key and an object name at once, so its characters are restricted:
1 to 128 characters of `A-Z a-z 0-9 _ - =`, not starting with `-` or `_kv`.
"""

import re

from lorogo_protocol.errors import InvalidDocumentId, MalformedMessage
from lorogo_protocol.limits import DOCUMENT_ID_CHARS_MAX, LOG_ID_CHARS_MAX

_DOCUMENT_ID = re.compile(r"(?!-|_kv)[A-Za-z0-9_=-]{1,128}")
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9_=-]")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUBJECT = re.compile(r"[!-)+-\-/-=?-~]+(?:\.[!-)+-\-/-=?-~]+)*")  # visible ASCII without . * >
_USER_INBOX = re.compile(r"_INBOX_[A-Za-z0-9]{1,64}\..+")
_INBOX_CHARS_MAX = 256

assert DOCUMENT_ID_CHARS_MAX == 128 and LOG_ID_CHARS_MAX == 64


def is_document_id(value: str) -> bool:
    """Return True if the text is a valid document id."""
    return _DOCUMENT_ID.fullmatch(value) is not None


def check_document_id(value: str) -> str:
    """Return the id. Raises InvalidDocumentId with the problem and the allowed characters."""
    given: object = value
    if not isinstance(given, str):
        kind = type(given).__name__
        raise InvalidDocumentId(repr(given)[:DOCUMENT_ID_CHARS_MAX], f"it is {kind}, not text")
    if _DOCUMENT_ID.fullmatch(value):
        return value
    raise InvalidDocumentId(value[: DOCUMENT_ID_CHARS_MAX + 1], _problem(value))


def _problem(value: str) -> str:
    if not value:
        return "it is empty"
    if len(value) > DOCUMENT_ID_CHARS_MAX:
        return f"it has {len(value)} characters, at most {DOCUMENT_ID_CHARS_MAX} are allowed"
    if bad := _NOT_ALLOWED.search(value):
        return f"{bad.group()!r} is not allowed; use A-Z a-z 0-9 _ - ="
    if value.startswith("-"):
        return "it must not begin with '-'"
    return "it must not begin with '_kv'"


def is_token(value: str) -> bool:
    """Return True if the text is a valid log, operation, server or trace id (a nanoid is)."""
    return _TOKEN.fullmatch(value) is not None


def check_token(value: str, what: str) -> str:
    """Return the token. Raises MalformedMessage that names `what`."""
    if not is_token(value):
        raise MalformedMessage(f"{what} must be 1 to {LOG_ID_CHARS_MAX} characters of A-Z a-z 0-9 _ -")
    return value


def is_inbox(value: str) -> bool:
    """Return True if the server may publish a reply there: one plain subject, not of NATS or lorogo.

    The server has more permissions than the sender: with a reply subject `$JS.API.…`, `$KV.…` or `loro.wal.…`
    a sender could misuse them.
    """
    return (
        len(value) <= _INBOX_CHARS_MAX
        and not value.startswith(("$", "loro."))
        and _SUBJECT.fullmatch(value) is not None
    )


def is_user_inbox(value: str) -> bool:
    """Return True for an inbox of one user; a server with keys replies to no other inboxes."""
    return is_inbox(value) and _USER_INBOX.fullmatch(value) is not None

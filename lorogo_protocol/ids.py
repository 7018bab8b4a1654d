"""Names: which text may be a document id, a log id or an operation id.

A document id is one NATS subject token, a KV key and an object name at once, so it is narrow:
1 to 128 characters of `A-Z a-z 0-9 _ - =`, not beginning with `-` or `_kv`.
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
    """Whether the text can name a document."""
    return _DOCUMENT_ID.fullmatch(value) is not None


def check_document_id(value: str) -> str:
    """The id itself, or InvalidDocumentId with what is wrong and what would be right."""
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
    """Whether the text can be a log id, an operation id, a server id or a trace id (a nanoid is one)."""
    return _TOKEN.fullmatch(value) is not None


def check_token(value: str, what: str) -> str:
    """The token itself, or MalformedMessage that names `what`."""
    if not is_token(value):
        raise MalformedMessage(f"{what} must be 1 to {LOG_ID_CHARS_MAX} characters of A-Z a-z 0-9 _ -")
    return value


def is_inbox(value: str) -> bool:
    """Whether an answer may be published there: one plain subject, neither NATS's own nor ours.

    The server has more rights than the sender: a "reply" to `$JS.API.…`, `$KV.…` or `loro.wal.…`
    would let a sender use them.
    """
    return (
        len(value) <= _INBOX_CHARS_MAX
        and not value.startswith(("$", "loro."))
        and _SUBJECT.fullmatch(value) is not None
    )


def is_user_inbox(value: str) -> bool:
    """Whether it is an inbox that belongs to one user: all that a server with keys answers to."""
    return is_inbox(value) and _USER_INBOX.fullmatch(value) is not None

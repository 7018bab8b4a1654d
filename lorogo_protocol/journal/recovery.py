"""Messages between servers after a possible data loss of NATS: restore a document before its load.

    requester     ──▶ loro.server.recover     request: document (or "": list the servers), doubt and round
    other servers ──▶ the requester's inbox   answers: working, then done

The log id identifies a journal, whichever server reads it. Both messages are msgpack maps; unknown keys
are ignored.
"""

from dataclasses import asdict, dataclass
from typing import Any

import msgpack

from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.ids import is_document_id, is_token

_JOURNALS_MAX = 1024
_HEX_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class RecoveryRequest:
    """Request to all other servers to restore a document, or to list the running servers."""

    server: str
    journals: tuple[str, ...]  # log ids, hex, of all journals that this server reads
    doubt: str  # id of the possible data loss: each server reads its journals once for it
    document: str = ""  # "": list the servers
    round: int = 0


@dataclass(frozen=True, slots=True)
class RecoveryAnswer:
    """Answer of one server to a request."""

    server: str
    journals: tuple[str, ...]
    doubt: str
    document: str = ""
    round: int = 0
    done: bool = False  # False: the server is still working
    whole: bool = False  # the stream has all records of these journals about the document
    changed: bool = False  # the server published or stored data for this request
    settled: bool = False  # `whole` for every document


def encode(message: RecoveryRequest | RecoveryAnswer) -> bytes:
    """Encode a message."""
    return bytes(msgpack.packb(asdict(message)))


def decode_ask(data: bytes) -> RecoveryRequest:
    """Decode a request. Raises MalformedMessage."""
    body = _body(data)
    return RecoveryRequest(*_common(body))


def decode_answer(data: bytes) -> RecoveryAnswer:
    """Decode an answer. Raises MalformedMessage."""
    body = _body(data)
    flags = [body.get(name) is True for name in ("done", "whole", "changed", "settled")]
    return RecoveryAnswer(*_common(body), *flags)


def _body(data: bytes) -> dict[str, Any]:
    try:
        body = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise MalformedMessage(f"not msgpack: {error}") from error
    if not isinstance(body, dict):
        raise MalformedMessage("not a map")
    return body


def _common(body: dict[str, Any]) -> tuple[str, tuple[str, ...], str, str, int]:
    server, doubt, document = (str(body.get(name, "")) for name in ("server", "doubt", "document"))
    journals, number = body.get("journals"), body.get("round", 0)
    if not is_token(server) or not is_token(doubt) or (document and not is_document_id(document)):
        raise MalformedMessage("server, doubt or document is not an id")
    if not isinstance(journals, list) or len(journals) > _JOURNALS_MAX or not isinstance(number, int):
        raise MalformedMessage("journals or round are missing")
    if not all(isinstance(one, str) and 0 < len(one) <= _HEX_CHARS_MAX for one in journals):
        raise MalformedMessage("a journal is not a log id")
    return server, tuple(journals), doubt, document, number

"""The JetStream API's JSON: validates answers, maps error codes, decodes stored messages."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from lorogo_transport.errors import (
    NoLeader,
    StorageFull,
    StreamBusy,
    StreamMissing,
    TooLarge,
    TransportError,
    Unreachable,
    WrongLastSequence,
)
from lorogo_transport.headers import own_headers, parse_headers
from lorogo_transport.ports import Message, StoredMessage, StreamState
from lorogo_transport.timestamps import parse_time_ns

MESSAGE_NOT_FOUND = 10037
SEQUENCE_NOT_FOUND = 10043
DELETE_FAILED = 10057
STREAM_NOT_FOUND = 10059
STREAM_NAME_TAKEN = 10058
_WRONG_LAST = {10071, 10164}
_TOO_LARGE = {10054}
_NO_JETSTREAM = {10076, 10039}
_BUSY = 10167  # "too many requests": the stream's queue is full
_NO_LEADER = {10008, 10009}  # "temporarily unavailable", "can not handle request": no quorum, no leader
# Limits of the account (10002), the server (10023, 10028, 10047) and the stream (10077: its
# `maximum bytes exceeded` or `maximum messages exceeded`, but also a failing disk).
_FULL = {10002, 10023, 10028, 10047, 10077}


class ApiError(TransportError):
    """JetStream returned an error code without a specific class."""

    code = "jetstream"

    def __init__(self, stream: str, error_code: int, description: str) -> None:
        super().__init__(f"JetStream on stream {stream!r}: {description} (error {error_code})")
        self.error_code = error_code


def decode(stream: str, data: bytes) -> dict[str, Any]:
    """Parse an answer. Raises the mapped error for an error answer."""
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise TransportError(f"the answer of stream {stream!r} is not JSON") from error
    if not isinstance(answer, dict):
        raise TransportError(f"the answer of stream {stream!r} is not a JSON object")
    failure = answer.get("error")
    if failure is not None:
        raise error_of(stream, failure)
    return answer


def error_of(stream: str, failure: Mapping[str, Any]) -> TransportError:
    """Map a JetStream error to a TransportError."""
    number = int(failure.get("err_code", 0))
    description = str(failure.get("description", "no description"))
    if number in _WRONG_LAST:
        return WrongLastSequence(f"stream {stream!r}: {description}")
    if number in _FULL:
        return StorageFull(f"stream {stream!r}: {description}")
    if number in _TOO_LARGE:
        return TooLarge(f"stream {stream!r}: {description}")
    if number == STREAM_NOT_FOUND:
        return StreamMissing(stream)
    if number == _BUSY:
        return StreamBusy(f"stream {stream!r}: {description}")
    if number in _NO_LEADER:
        return NoLeader(f"stream {stream!r}: {description}")
    if number in _NO_JETSTREAM:
        return Unreachable("JetStream is not enabled for this account: enable it (nats-server -js)")
    return ApiError(stream, number, description)


def stored_from_api(message: Mapping[str, Any]) -> StoredMessage:
    """Decode the `message` of a STREAM.MSG.GET answer."""
    raw = message.get("hdrs")
    return StoredMessage(
        subject=message["subject"],
        sequence=message["seq"],
        time_ns=parse_time_ns(message["time"]),
        data=base64.b64decode(message.get("data") or ""),
        headers=own_headers(parse_headers(base64.b64decode(raw))) if raw else {},
    )


def stored_from_direct(message: Message) -> StoredMessage:
    """Decode one message of a direct get."""
    headers = message.headers
    return StoredMessage(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        time_ns=parse_time_ns(headers["Nats-Time-Stamp"]),
        data=message.data,
        headers=own_headers(headers),
    )


def state_from_info(info: Mapping[str, Any]) -> StreamState:
    state = info["state"]
    return StreamState(
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        consumers=state["consumer_count"],
        bytes_max=info["config"].get("max_bytes", -1),
        created_ns=parse_time_ns(info["created"]) if "created" in info else 0,
        now_ns=parse_time_ns(info["ts"]) if "ts" in info else 0,
        replicas=info["config"].get("num_replicas", 1),
        replicas_current=1 + _followers(info.get("cluster") or {}),
    )


def _followers(cluster: Mapping[str, Any]) -> int:
    """Return the number of current followers; the answering replica is the leader."""
    others = cluster.get("replicas") or ()
    return sum(bool(one.get("current")) and not one.get("offline") for one in others)

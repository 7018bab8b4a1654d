"""The golden vectors, read as another implementation would read them, and checked both ways."""

import json
from base64 import b64decode
from typing import Any

import pytest

from lorogo_protocol import ids, status
from lorogo_protocol.access import grants
from lorogo_protocol.errors import InvalidDocumentId, MalformedMessage
from lorogo_protocol.messages import calls, chunks, replies
from lorogo_protocol.messages.chunks import (
    Assembled,
    AssemblyOutcome,
    AssemblyRejected,
    ChunkAssembler,
    Repeated,
)
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack
from lorogo_protocol.status import Down, Failed, Starting, Up
from tests.protocol.make_vectors import FOLDER, make


def vectors(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


CHUNKS = vectors("chunks.json")
STATUSES = vectors("statuses.json")
REPLIES = vectors("replies.json")
IDS = vectors("document_ids.json")
DIGESTS = vectors("digests.json")
CALLS = vectors("calls.json")


def test_making_them_again_gives_the_same_files() -> None:
    """The files equal the script's output: they have no manual edits, and the wire has not changed."""
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == make()


@pytest.mark.parametrize("row", CHUNKS["split"], ids=lambda row: str(row["name"]))
def test_splits(row: dict[str, Any]) -> None:
    """The payload gives these messages, and these messages give the payload."""
    payload = b64decode(row["payload"])
    cut = chunks.split(payload, row["log_id"], chunk_bytes_max=row["chunk_bytes_max"], inbox=row["inbox"])
    wire = [(message["headers"], b64decode(message["data"])) for message in row["messages"]]
    assert [(chunk.headers(), chunk.data) for chunk in cut] == wire
    assembler = ChunkAssembler()
    read = [chunks.parse(headers, data) for headers, data in reversed(wire)]
    *silence, outcome = [assembler.add(chunk, sequence=n, now=0.0) for n, chunk in enumerate(read, 1)]
    assert not any(silence)
    assert isinstance(outcome, Assembled)
    assert (outcome.payload, outcome.inbox) == (payload, row["inbox"])


def matches(outcome: AssemblyOutcome, expected: dict[str, Any] | None) -> bool:
    match outcome:
        case None:
            return expected is None
        case Assembled(log_id, payload, _, inbox, sequence):
            assert expected is not None
            payload_expected = b64decode(expected["payload"])
            said = ("whole", log_id, inbox, sequence)
            wanted = (expected["is"], expected["log_id"], expected["inbox"], expected["sequence"])
            return said == wanted and payload == payload_expected
        case AssemblyRejected(log_id, reason, _, _, inbox):
            return expected == {"is": "nack", "log_id": log_id, "inbox": inbox, "reason": reason.value}
        case Repeated(log_id, _, inbox, sequence):
            return expected == {"is": "ack again", "log_id": log_id, "inbox": inbox, "sequence": sequence}


@pytest.mark.parametrize("row", CHUNKS["stories"], ids=lambda row: str(row["name"]))
def test_stories(row: dict[str, Any]) -> None:
    """Each message gets this answer, and a minute later these follow."""
    assembler = ChunkAssembler(update_bytes_max=100)
    for sequence, (message, expected) in enumerate(zip(row["messages"], row["answers"], strict=True), 1):
        chunk = chunks.parse(message["headers"], b64decode(message["data"]))
        outcome = assembler.add(chunk, sequence=sequence, now=0.0)
        assert matches(outcome, expected), outcome
        if isinstance(outcome, Assembled):
            assembler.acked(outcome.log_id, outcome.digest, outcome.sequence, now=0.0)
    expired = assembler.expire(60.0)
    assert len(expired) == len(row["after_60_seconds"])
    assert all(matches(outcome, e) for outcome, e in zip(expired, row["after_60_seconds"], strict=True))


@pytest.mark.parametrize("row", CHUNKS["malformed"], ids=lambda row: str(row["name"]))
def test_headers_that_are_no_chunk(row: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        chunks.parse(row["headers"], b"x")


@pytest.mark.parametrize("row", STATUSES["valid"], ids=lambda row: str(row["status"]["is"]))
def test_statuses(row: dict[str, Any]) -> None:
    """The value reads as this status, and this status is written as the value."""
    facts = dict(row["status"])
    kinds = {"DOWN": Down, "STARTING": Starting, "UP": Up, "ERROR": Failed}
    expected = kinds[facts.pop("is")](**facts)
    assert status.decode(b64decode(row["value"])) == expected
    assert status.encode(expected) == b64decode(row["value"])


@pytest.mark.parametrize("value", STATUSES["malformed"])
def test_values_that_are_no_status(value: str) -> None:
    with pytest.raises(MalformedMessage):
        status.decode(b64decode(value))


@pytest.mark.parametrize("row", REPLIES["valid"], ids=lambda row: str(row["reply"].get("reason", "ack")))
def test_replies(row: dict[str, Any]) -> None:
    """Body and headers read as this reply, and this reply is sent as these."""
    facts = dict(row["reply"])
    is_ack = facts.pop("is") == "ack"
    expected = Ack(**facts) if is_ack else Nack(**facts | {"reason": Reason(facts["reason"])})
    assert replies.decode(b64decode(row["body"]), row["headers"]) == expected
    assert replies.encode(expected) == (b64decode(row["body"]), row["headers"])


@pytest.mark.parametrize("row", REPLIES["malformed"])
def test_messages_that_are_no_reply(row: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        replies.decode(b64decode(row["body"]), row["headers"])


def test_document_ids() -> None:
    """These are ids, and those are not."""
    assert [ids.check_document_id(value) for value in IDS["valid"]] == IDS["valid"]
    for value in IDS["invalid"]:
        with pytest.raises(InvalidDocumentId):
            ids.check_document_id(value)


def test_tokens_and_inboxes() -> None:
    for name, check in (("tokens", ids.is_token), ("inboxes", ids.is_inbox)):
        assert all(check(value) for value in IDS[name]["valid"])
        assert not any(check(value) for value in IDS[name]["invalid"])


def test_digests() -> None:
    for row in DIGESTS["digests"]:
        assert digest(b64decode(row["payload"])) == row["digest"]


def rich(value: Any) -> Any:
    """JSON as it stands in the vectors, with its bytes."""
    match value:
        case {"base64": str(text), **rest} if not rest:
            return b64decode(text)
        case dict():
            return {key: rich(inner) for key, inner in value.items()}
        case list():
            return [rich(inner) for inner in value]
        case _:
            return value


@pytest.mark.parametrize("row", CALLS["valid"])
def test_calls(row: dict[str, Any]) -> None:
    """The bytes read as this body, and this body is sent as the bytes."""
    body = rich(row["body"])
    assert calls.decode(b64decode(row["encoded"])) == body
    assert calls.encode(body) == b64decode(row["encoded"])


@pytest.mark.parametrize("data", CALLS["malformed"])
def test_bytes_that_are_no_call(data: str) -> None:
    with pytest.raises(MalformedMessage):
        calls.decode(b64decode(data))


def test_the_verbs() -> None:
    assert CALLS["verbs"] == list(grants.VERBS)

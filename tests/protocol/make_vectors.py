"""The golden vectors, with which implementations in other languages check themselves.

`python -m tests.protocol.make_vectors` writes `vectors/*.json` again, always the same. Bytes are
base64. A change in these files is a change of the wire: think twice, and note it in the changelog.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from lorogo_protocol import status
from lorogo_protocol.access import grants
from lorogo_protocol.messages import calls, chunks, replies
from lorogo_protocol.messages.calls import Body
from lorogo_protocol.messages.chunks import (
    Assembled,
    AssemblyOutcome,
    AssemblyRejected,
    Chunk,
    ChunkAssembler,
    Repeated,
)
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack, Nack, Reply
from lorogo_protocol.status import Down, Failed, Starting, Status, Up

FOLDER = Path(__file__).parent / "vectors"
Json = object


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def pattern(size: int) -> bytes:
    """Bytes that repeat only after 251, so that a wrong cut shows."""
    return bytes(place % 251 for place in range(size))


# --- chunks ---------------------------------------------------------------------------------------

SPLITS: Sequence[tuple[str, bytes, int, str]] = (
    ("empty", b"", 4, ""),
    ("one byte", b"x", 4, "_INBOX.abc.1"),
    ("exactly one chunk", b"abcd", 4, "_INBOX.abc.1"),
    ("one byte more", b"abcde", 4, "_INBOX.abc.1"),
    ("exactly two chunks", b"abcdefgh", 4, ""),
    ("eleven chunks", pattern(1100), 100, "_INBOX.abc.1"),
    ("bytes that are not text", bytes(range(256)), 64, "_INBOX_alice.7"),
)
TWO = list(chunks.split(b"abcdefgh", "two", chunk_bytes_max=4, inbox="_INBOX.two"))
THREE = list(chunks.split(b"ABCDEFGHIJ", "three", chunk_bytes_max=4, inbox="_INBOX.three"))
TOO_LARGE = list(chunks.split(pattern(101), "large", chunk_bytes_max=20, inbox="_INBOX.large"))
GOOD = TWO[1].headers()

# A story: the messages as they come, the outcome of each, and the outcomes after a timeout.
STORIES: Sequence[tuple[str, Sequence[Chunk]]] = (
    ("in order", TWO),
    ("final chunk first", TWO[::-1]),
    ("interleaved", [THREE[0], TWO[0], THREE[2], TWO[1], THREE[1]]),
    ("doubled", [TWO[0], TWO[0], TWO[1], TWO[1], TWO[0]]),
    ("a chunk is missing", [THREE[0], THREE[2]]),
    ("no final chunk", THREE[:2]),
    ("wrong digest", [TWO[0], replace(TWO[1], digest="1")]),
    ("no digest", [TWO[0], replace(TWO[1], digest="")]),
    ("wrong count", [TWO[0], replace(TWO[1], count=3)]),
    ("two byte strings", [TWO[0], replace(TWO[0], data=b"ABCD")]),
    ("the id was ACKed with another digest", [*TWO, replace(TWO[1], digest="1")]),
    ("a chunk behind the last", [TWO[1], Chunk("two", 5, b"beyond")]),
    ("101 bytes where 100 are allowed", TOO_LARGE),
)
NO_CHUNKS: Sequence[tuple[str, Mapping[str, str]]] = (
    ("no headers", {}),
    ("no index", {"LORO_LOG_ID": "id"}),
    ("log id with a dot", GOOD | {"LORO_LOG_ID": "a.b"}),
    ("log id of 65 characters", GOOD | {"LORO_LOG_ID": "x" * 65}),
    ("negative index", GOOD | {"LORO_CHUNK_INDEX": "-1"}),
    ("index of ten digits", GOOD | {"LORO_CHUNK_INDEX": "1000000000"}),
    ("final is not true", GOOD | {"LORO_FINAL": "yes"}),
    ("count is not a number", GOOD | {"LORO_CHUNK_COUNT": "two"}),
    ("digest in hexadecimal", GOOD | {"LORO_DIGEST": "0xef46db3751d8e999"}),
    ("inbox with a wildcard", GOOD | {"LORO_RESPONSE_INBOX": "_INBOX.>"}),
    ("inbox on a subject of NATS", GOOD | {"LORO_RESPONSE_INBOX": "$JS.API.STREAM.DELETE.loro-wal"}),
    ("inbox on a subject of lorogo", GOOD | {"LORO_RESPONSE_INBOX": "loro.wal.other"}),
)


def message(chunk: Chunk) -> Json:
    return {"headers": chunk.headers(), "data": b64(chunk.data)}


def said(outcome: AssemblyOutcome) -> Json:
    match outcome:
        case None:
            return None
        case Assembled():
            facts = {"payload": b64(outcome.payload), "sequence": outcome.sequence}
            return {"is": "whole", "log_id": outcome.log_id, "inbox": outcome.inbox, **facts}
        case AssemblyRejected():
            return {"is": "nack", "log_id": outcome.log_id, "inbox": outcome.inbox, "reason": outcome.reason}
        case Repeated():
            facts = {"sequence": outcome.sequence}
            return {"is": "ack again", "log_id": outcome.log_id, "inbox": outcome.inbox, **facts}


def story(name: str, messages: Sequence[Chunk]) -> Json:
    """Sequences count from 1, all at second 0; whole updates are ACKed at once; then 60 s pass."""
    assembler = ChunkAssembler(update_bytes_max=100)
    answers = []
    for sequence, chunk in enumerate(messages, 1):
        outcome = assembler.add(chunk, sequence=sequence, now=0.0)
        if isinstance(outcome, Assembled):
            assembler.acked(outcome.log_id, outcome.digest, outcome.sequence, now=0.0)
        answers.append(said(outcome))
    expired = [said(outcome) for outcome in assembler.expire(60.0)]
    return {
        "name": name,
        "messages": [message(chunk) for chunk in messages],
        "answers": answers,
        "after_60_seconds": expired,
    }


def chunk_vectors() -> Json:
    return {
        "about": "split: payload to messages and back. stories: outcomes of an owner that takes 100 bytes.",
        "split": [
            {
                "name": name,
                "log_id": "V1StGXR8_Z5jdHi6B-myT",
                "chunk_bytes_max": size,
                "inbox": inbox,
                "payload": b64(payload),
                "messages": [
                    message(chunk)
                    for chunk in chunks.split(
                        payload, "V1StGXR8_Z5jdHi6B-myT", chunk_bytes_max=size, inbox=inbox
                    )
                ],
            }
            for name, payload, size, inbox in SPLITS
        ],
        "stories": [story(name, messages) for name, messages in STORIES],
        "malformed": [{"name": name, "headers": dict(headers)} for name, headers in NO_CHUNKS],
    }


# --- statuses -------------------------------------------------------------------------------------

STATUSES: Sequence[Status] = (
    Down(0),
    Down(1_794_785_851_123_456_789),
    Starting("V1StGXR8_Z5jdHi6B-myT", 0, 1_794_785_851_000_000_001),
    Starting("op", 3, 999_999_999),
    Up("server-1", 1_794_785_851_123_456_789),
    Up("_", 1),
    Failed("x" * 64, 1_794_785_851_123_456_789),
)
NO_STATUSES: Sequence[bytes] = (
    b"",
    b"UP",
    b"up:server-1:1794785851.123456789",
    b"DOWN:1794785851",
    b"DOWN:1794785851.123",
    b"DOWN:2026-11-16T00:57:31",
    b"STARTING:op:1794785851.123456789",
    b"STARTING:op:-1:1794785851.123456789",
    b"UP::1794785851.123456789",
    b"UP:a.b:1794785851.123456789",
    b"ERROR:" + b"x" * 65 + b":1794785851.123456789",
    b"\xff\xfe",
)
KINDS: Mapping[type[Status], str] = {Down: "DOWN", Starting: "STARTING", Up: "UP", Failed: "ERROR"}


def status_vectors() -> Json:
    return {
        "about": "value: what stands in the bucket. time_ns: Unix time in nanoseconds.",
        "valid": [
            {"value": b64(status.encode(item)), "status": {"is": KINDS[type(item)], **asdict(item)}}
            for item in STATUSES
        ],
        "malformed": [b64(value) for value in NO_STATUSES],
    }


# --- replies --------------------------------------------------------------------------------------

REPLIES: Sequence[Reply] = (
    Ack("V1StGXR8_Z5jdHi6B-myT", "17241709254077376921", 7, "stream", 3),
    Ack("id", "0", 18_446_744_073_709_551_615, "journal", 18_446_744_073_709_551_615),
    Ack("id", "0", 1, "replicated", 1),
    *(Nack("id", "17241709254077376921", reason, f"because of {reason.value}") for reason in Reason),
    Nack("id", "0", Reason.BUSY, ""),
)
ACK = replies.encode(REPLIES[0])[1]
NACK = replies.encode(REPLIES[-1])[1]
NO_REPLIES: Sequence[tuple[bytes, Mapping[str, str]]] = (
    (b"", ACK),
    (b"ack", ACK),
    (b"NAK", NACK),
    (b"ACK", ACK | {"LORO_DURABILITY": "memory"}),
    (b"ACK", ACK | {"LORO_SEQUENCE": "-7"}),
    (b"ACK", ACK | {"LORO_LEASE": ""}),
    (b"NACK", NACK | {"LORO_REASON": "because"}),
)


def reply_vectors() -> Json:
    return {
        "about": "body and headers of each answer to an update.",
        "valid": [
            {
                "body": b64(replies.encode(item)[0]),
                "headers": replies.encode(item)[1],
                "reply": {"is": type(item).__name__.lower(), **asdict(item)},
            }
            for item in REPLIES
        ],
        "malformed": [{"body": b64(body), "headers": dict(headers)} for body, headers in NO_REPLIES],
    }


# --- names and digests ----------------------------------------------------------------------------


def id_vectors() -> Json:
    return {
        "about": "document ids; tokens are log ids, operation ids, server ids and trace ids.",
        "valid": ["a", "0", "_", "=", "a-", "minutes-2026-11", "A_b=c-9", "_k", "_KV", "x" * 128],
        "invalid": [
            *("", "x" * 129, "-a", "_kv", "_kv_epoch", "a.b", "*", ">", "a b", "a/b", "a\n", "é", "$KV"),
        ],
        "tokens": {
            "valid": ["a", "-", "_kv", "V1StGXR8_Z5jdHi6B-myT", "x" * 64],
            "invalid": ["", "x" * 65, "a=b", "a.b", "a b", "a\n", "é"],
        },
        "inboxes": {
            "valid": ["_INBOX.a.b", "_INBOX_alice.x", "replies", "x" * 256],
            "invalid": [
                "",
                "x" * 257,
                "$KV.a",
                "loro.wal.a",
                "_INBOX.*",
                "_INBOX.>",
                "a b",
                "a..b",
                "a.",
                ".a",
            ],
        },
    }


def digest_vectors() -> Json:
    payloads = [b"", b"a", b"abc", bytes(32), *(pattern(size) for size in (4, 31, 32, 33, 251, 1100))]
    return {
        "about": "xxh64, seed 0, unsigned decimal.",
        "digests": [{"payload": b64(payload), "digest": digest(payload)} for payload in payloads],
    }


# --- calls ----------------------------------------------------------------------------------------

BODIES: Sequence[Body] = (
    {},
    {"frontiers": b"\x00"},
    {"frontiers": b"\x01\x01\x0a", "vector": b"\x01\x01\x0c", "generation": 2},
    {"paths": ["$.a", "$..b[?@.c == 'é']"]},
    {"operations": [{"op": "add", "path": "/a/-", "value": [None, True, -1, 1.5, "x"]}]},
    {"at": 1_794_785_851_123_456_789},
    {"sequence": 18_446_744_073_709_551_615, "durability": "stream", "lease": 3, "frontiers": b""},
)
NO_BODIES: Sequence[bytes] = (
    b"\xc1",
    b"\x90",
    b"\x01",
    b"\x81",
    b"\x80\x80",
    b"\x81\x01\x01",
    b"\x81\xc4\x01a\x01",
)


def plain(value: object) -> Json:
    """JSON has no bytes: they become {"base64": ...}."""
    match value:
        case bytes():
            return {"base64": b64(value)}
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case _:
            return value


def call_vectors() -> Json:
    return {
        "about": "msgpack maps. Another encoder may choose other widths or another order: decoding decides.",
        "verbs": list(grants.VERBS),
        "valid": [{"body": plain(body), "encoded": b64(calls.encode(body))} for body in BODIES],
        "malformed": [b64(data) for data in NO_BODIES],
    }


def make() -> dict[str, str]:
    """Every file by its name, as it should be."""
    files = {
        "chunks.json": chunk_vectors(),
        "statuses.json": status_vectors(),
        "replies.json": reply_vectors(),
        "document_ids.json": id_vectors(),
        "digests.json": digest_vectors(),
        "calls.json": call_vectors(),
    }
    return {name: json.dumps(content, indent=1, ensure_ascii=True) + "\n" for name, content in files.items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file_name, file_text in make().items():
        (FOLDER / file_name).write_text(file_text, encoding="utf-8")

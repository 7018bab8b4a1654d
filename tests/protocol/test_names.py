"""Subjects, reasons, headers, limits and the tree of errors."""

import inspect
import re
from pathlib import Path

import pytest

from lorogo_protocol import errors, limits
from lorogo_protocol.access.grants import VERBS
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import headers, subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.chunks import CHUNKS_MAX
from lorogo_protocol.messages.digest import digest
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.sandbox.sandbox_worker import DECODE_SECONDS

PROTOCOL = (Path(__file__).parents[2] / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (subjects.wal("a"), "loro.wal.a"),
        (subjects.committed("a"), "loro.committed.a"),
        (subjects.accepted("a"), "loro.accepted.a"),
        (subjects.status("a"), "loro.status.a"),
        (subjects.status_key("a"), "$KV.loro-document-status.a"),
        (subjects.ping("a"), "loro.ping.a"),
        (subjects.erased("a"), "loro.erased.a"),
        (subjects.vouched("a"), "loro.server.vouched.a"),
        (subjects.server_feed("a"), "loro.server.feed.a"),
        (subjects.revoked("a"), "loro.revoked.a"),
        (subjects.init("a"), "loro.init.a"),
        (subjects.call("get", "a"), "loro.doc.get.a"),
        (subjects.calls("a"), "loro.doc.*.a"),
        (subjects.awareness("a"), "loro.awareness.a"),
        (subjects.rejected("a"), "loro.rejected.a"),
        (subjects.presence_key("a"), "$KV.loro-presence.a"),
    ],
)
def test_every_subject_ends_with_the_document(subject: str, expected: str) -> None:
    """The names are those of PROTOCOL.md, and the document can be read off any of them."""
    assert subject == expected
    assert subjects.document_of(subject) == "a"


def test_streams_and_buckets() -> None:
    """The names that an operator sees."""
    assert subjects.STATUS_STREAM == "KV_loro-document-status"
    assert subjects.SNAPSHOT_STREAM == "OBJ_loro-document-snapshots"
    for name in (
        subjects.WAL_STREAM,
        subjects.STATUS_BUCKET,
        subjects.SNAPSHOT_BUCKET,
        subjects.PRESENCE_BUCKET,
    ):
        assert f"`{name}`" in PROTOCOL
    assert f"`{subjects.REJECTED_STREAM}`" in PROTOCOL
    assert f"`{subjects.INIT_QUEUE}`" in PROTOCOL


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE",
        "SERVER_STARTED",
        "SERVER_RECOVER",
        "INIT_QUEUE",
        "TAKEN",
        "SERVER_INBOX",
        "GATEWAY_INBOX",
        "OPERATOR_INBOX",
    ],
)
def test_the_page_has_the_names_without_a_document(name: str) -> None:
    """The wire reference has the subjects of documents; PROTOCOL.md has the others."""
    assert getattr(subjects, name) in PROTOCOL


def test_the_page_names_every_header() -> None:
    """PROTOCOL.md and the code know the same headers."""
    ours = {value for name, value in vars(headers).items() if name.isupper()}
    assert ours == set(re.findall(r"LORO_[A-Z_]+", PROTOCOL))


def test_the_page_names_every_reason_and_verb() -> None:
    """PROTOCOL.md and the code know the same codes and calls."""
    said = set(re.findall(r"`([a-z-]+)`", PROTOCOL))
    assert {reason.value for reason in Reason} - {"invalid-document-id"} <= said
    calls = PROTOCOL.partition("## Calls")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z]+)` \|", calls, re.MULTILINE) == list(VERBS)


RETRIABLE = {"digest-mismatch", "chunk-missing", "missing-dependencies", "not-owner", "rate-limited", "busy"}


@pytest.mark.parametrize("reason", Reason)
def test_which_reasons_may_pass(reason: Reason) -> None:
    """The same bytes, sent again, may be accepted after these reasons and no others."""
    assert reason.retriable is (reason.value in RETRIABLE)


@pytest.mark.parametrize(
    ("error", "parent", "code"),
    [
        (errors.LorogoError(), Exception, "error"),
        (errors.InvalidDocumentId("a.b", "no"), errors.LorogoError, "invalid-document-id"),
        (errors.MalformedMessage(), errors.LorogoError, "malformed-message"),
        (errors.CrdtError(), errors.LorogoError, "crdt"),
        (errors.InvalidUpdate(), errors.CrdtError, "invalid-update"),
        (errors.HistoryTrimmed(), errors.CrdtError, "history-trimmed"),
        (CrdtPanic(), errors.CrdtError, "crdt-panic"),
        (Refused(Reason.BUSY, ""), errors.LorogoError, "busy"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_tree_of_errors(error: errors.LorogoError, parent: type[Exception], code: str) -> None:
    """One tree; each error has a code, and none of these passes by itself."""
    assert type(error).__bases__ == (parent,)
    assert error.code == code
    assert error.retriable is False


def test_every_error_is_drawn() -> None:
    """The docstring's tree has every class of the module."""
    ours = [
        name for name, value in vars(errors).items() if inspect.isclass(value) and "Error" in str(value.mro())
    ]
    assert ours
    assert all(name in (errors.__doc__ or "") for name in ours)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_the_digest_is_xxh64(payload: bytes, expected: int) -> None:
    """The published values of xxh64 with seed 0, in decimal."""
    assert digest(payload) == str(expected)


def test_the_limits_are_those_of_the_page() -> None:
    """A number in PROTOCOL.md is the number in the code."""
    assert limits.CHUNK_BYTES_MAX == 128 * 1024 and "128 KiB at most" in PROTOCOL
    assert limits.UPDATE_BYTES_MAX == 64 * 1024 * 1024 and "| bytes | 64 MiB |" in PROTOCOL
    assert limits.UPDATE_PEERS_MAX == 1000 and "changes it holds | 1,000 |" in PROTOCOL
    assert limits.UPDATE_PEER_CHANGES_MAX == 10_000_000 and "times changes | 10,000,000 |" in PROTOCOL
    assert limits.ACCEPTED_INLINE_BYTES_MAX == 8 * 1024 * 1024 and "above 8 MiB" in PROTOCOL
    assert limits.RENEW_SECONDS == 3 and "every 3 s" in PROTOCOL
    assert limits.LEASE_SECONDS == 4 and "until 4 s after" in PROTOCOL
    assert limits.STALE_SECONDS == 5 and "unchanged for 5 s" in PROTOCOL
    assert limits.CHUNK_GRACE_SECONDS == 1 and "1 s to come" in PROTOCOL
    assert limits.UNFINISHED_SECONDS == 60 and "expire after 60 s" in PROTOCOL
    assert limits.REMEMBER_ACKED_SECONDS == 600 and "at least 10 minutes" in PROTOCOL
    assert limits.RETRIES_MAX == 3 and "above 3" in PROTOCOL
    assert limits.DOCUMENT_ID_CHARS_MAX == 128 and "is 1 to 128 characters" in PROTOCOL
    assert limits.LOG_ID_CHARS_MAX == 64 and "are 1 to 64 characters" in PROTOCOL
    assert limits.CHUNK_HEADER_BYTES_RESERVED == 2 * limits.KIB and "minus 2 KiB" in PROTOCOL
    assert limits.AWARENESS_BYTES_MAX == 64 * limits.KIB and "at most 64 KiB in a message" in PROTOCOL
    assert limits.KEPT_PRESENCE_BYTES_MAX == 128 * limits.MIB and "128 MiB by default" in PROTOCOL
    assert limits.REVOKED_BYTES_MAX == 64 * limits.MIB and "history 1, 64 MiB" in PROTOCOL
    assert limits.WINDOW_BYTES == 4 * limits.MIB and "every 4 MiB" in PROTOCOL
    assert limits.INGEST_BYTES_MAX == 4 * limits.MIB and "max_buffered_size: 4MB" in PROTOCOL
    assert limits.REPLY_SECONDS == 5 and "no answer after 5 s" in PROTOCOL
    assert limits.RESTART_SECONDS == 1 and limits.RESTART_SECONDS_MAX == 60
    assert "waits 1 s (doubled each time, 60 s at most)" in PROTOCOL
    assert limits.PRESENCE_SECONDS == 30 and "expire after 30 s" in PROTOCOL
    assert limits.REJECTED_KEEP_SECONDS == 7 * 24 * 3600 and "kept 7 days" in PROTOCOL


def test_the_limits_of_an_update_are_those_of_the_page() -> None:
    """Each row of the table of an update's limits has the numbers of the code, and no row is left out."""
    part = PROTOCOL.partition("| limit (* new updates only) | at most |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines()[2:]]
    found = [
        [int(number.replace(",", "")) for number in re.findall(r"[\d,]+(?!\.)", row[1])] for row in rows[:-1]
    ]
    assert found == [
        [limits.UPDATE_BYTES_MAX // limits.MIB],
        [CHUNKS_MAX],
        [limits.UPDATE_PEERS_MAX],
        [limits.UPDATE_PEER_CHANGES_MAX],
        [limits.UNSTEPPED_OPERATIONS_MAX],
        [limits.TREE_BESIDE_OPERATIONS_MAX],
        [limits.EDITS_BESIDE_MAX],
        [limits.EDITS_MAX],
        [limits.MERGED_OPERATIONS_MAX],
        [limits.MERGED_OPERATIONS_MAX],
        [limits.RUN_BESIDE_OPERATIONS_MAX],
        [limits.TREE_REPLAY_STEPS_MAX],
        [limits.SNAPSHOT_MERGED_OPERATIONS_MAX],
    ]
    assert rows[-1][1].startswith(f"{DECODE_SECONDS:g} s of CPU")

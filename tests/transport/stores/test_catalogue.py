"""Documents seen without starting one."""

import pytest

from lorogo_client import DocumentDeleted, DocumentFailed
from lorogo_client.errors import check_stored
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import StoredMessage
from lorogo_transport.stores.catalogue import (
    Catalogue,
    DocumentSummary,
    ask_owner,
    edited_ns,
    read_summary,
    row,
    rows,
)
from lorogo_transport.stores.snapshots import SnapshotHead
from tests.client.support import new_world

SECOND = 1_000_000_000


@pytest.fixture
async def nats() -> MemoryNats:
    return await new_world()


def head(**facts: str) -> SnapshotHead:
    return SnapshotHead("doc", 1, "n", 7, 1, "", facts, time_ns=50)


def stored(time_ns: int) -> StoredMessage:
    return StoredMessage(subjects.wal("doc"), 1, time_ns, b"")


@pytest.mark.parametrize(
    ("last", "snapshot", "expected"),
    [
        (None, None, None),
        (stored(9), None, 9),
        (None, head(), 50),
        (None, head(dated="[]"), 50),
        (None, head(dated='[[3,"AA==",1],[40,"AQ==",2]]'), 40),
        (None, head(dated='[[3, "AA==", 1], [40, "AQ==", 2]]'), 40),
        (None, head(dated="[[nonsense"), 50),
        (None, head(dated="[[-4,"), 50),
        (stored(45), head(dated='[[40,"AQ==",2]]'), 45),
        (stored(35), head(dated='[[40,"AQ==",2]]'), 40),
        (stored(45), head(), 45),
    ],
)
def test_the_last_edit(
    last: StoredMessage | None, snapshot: SnapshotHead | None, expected: int | None
) -> None:
    """The last message of the WAL, or the last version of the snapshot; a compaction is no edit."""
    assert edited_ns(last, snapshot) == expected


@pytest.mark.parametrize(
    ("entry", "facts"),
    [
        (None, {"state": "DOWN", "lease": 0, "server": "", "changed_ns": None}),
        (
            StatusEntry(Down(5), 9, server="s", lease=3),
            {"state": "DOWN", "lease": 0, "server": "", "changed_ns": 5},
        ),
        (
            StatusEntry(Up("s", 10 * SECOND), 9, server="s"),
            {"state": "UP", "lease": 9, "server": "s", "stale": False},
        ),
        (
            StatusEntry(Up("s", 1), 9, server="s", lease=3),
            {"state": "UP", "lease": 3, "server": "s", "stale": True},
        ),
        (StatusEntry(Starting("op", 2, 5), 9), {"state": "STARTING", "lease": 0, "server": "", "retries": 2}),
        (StatusEntry(Failed("t", 5), 9), {"state": "ERROR", "trace": "t"}),
    ],
)
def test_a_row_tells_the_state(entry: StatusEntry | None, facts: dict[str, object]) -> None:
    """The state, owner and sizes of a document."""
    made = row("doc", entry, head(deleted_ns="1", erased_ns="0"), 4, now_ns=12 * SECOND)
    assert made.items() >= facts.items()
    assert (made["deleted"], made["erased"], made["snapshot_bytes"], made["wal_messages"]) == (
        True,
        False,
        7,
        4,
    )


def test_a_deleted_or_failed_document_raises_its_error() -> None:
    """`check_stored` raises the error of a later call."""
    with pytest.raises(DocumentFailed):
        check_stored(DocumentSummary("doc", None, None, StatusEntry(Failed("t", 5), 9)))
    deleted = DocumentSummary("doc", None, head(deleted_ns="1"), None)
    with pytest.raises(DocumentDeleted):
        check_stored(deleted)
    check_stored(deleted, deleted=True)
    assert not DocumentSummary("doc", None, None, None).known


async def test_names_that_are_no_documents_are_not_listed(nats: MemoryNats) -> None:
    """NATS allows any subject below `loro.wal.`; a page has only valid document ids."""
    transport = nats.connect()
    wal = transport.stream(subjects.WAL_STREAM)
    for name in ("b", "a", "-x", "ü", "_kv_epoch"):
        await wal.append(subjects.wal(name), b"x")
    page = await Catalogue(transport).page(limit=10)
    assert [one["document"] for one in page.rows] == ["a", "b"]
    assert page.next is None
    assert len(await rows(transport, now_ns=0)) == 5
    assert (await read_summary(transport, "a")).known
    assert await ask_owner(transport, "a") is None


class _Clock:
    seconds = 100.0

    def wall_ns(self) -> int:
        return 0

    def now(self) -> float:
        return self.seconds


async def test_names_are_read_again_after_a_while(nats: MemoryNats) -> None:
    """If reading takes no time, the next page has a new document."""
    transport, clock = nats.connect(), _Clock()
    wal = transport.stream(subjects.WAL_STREAM)
    catalogue = Catalogue(transport, clock)
    for number in range(3):
        await wal.append(subjects.wal(f"doc-{number}"), b"x")
        assert len((await catalogue.page(limit=10)).rows) == number + 1

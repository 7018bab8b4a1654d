"""Where a relay stands: what is passed on, what asks for a sync, what only a join can mend."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from lorogo_client.delivery.accepted import AcceptedUpdate
from lorogo_client.session.syncing import Synced
from lorogo_gateway.relay.relay_state import RelayedUpdate, RelayState
from lorogo_protocol.errors import InvalidUpdate
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Reach, Replica
from lorogo_protocol.status import Down, Up
from tests.gateway.relay_pages import Page


class Doc:
    """The owner's document, one update after the other."""

    def __init__(self) -> None:
        self.page = Page()
        self.sequence = 10

    def update(self, text: str = "word ", *, lease: int = 5, omitted: bool = False) -> AcceptedUpdate:
        payload = self.page.edit(text)
        previous, self.sequence = self.sequence, self.sequence + 1
        return AcceptedUpdate(
            f"log-{self.sequence}", self.sequence, previous, lease, None if omitted else payload
        )

    def answer(self, since: bytes = b"\x00", *, lease: int = 5, generation: int = 0) -> Synced:
        replica = Replica(self.page.doc)
        whole = since == crdt.nothing_known()
        payload = replica.snapshot() if whole else replica.updates_since(since)
        mode = "snapshot" if whole else "updates"
        return Synced(mode, payload, replica.version().vector, self.sequence, lease, generation, b"")


def begun(doc: Doc) -> RelayState:
    doc.update("start ")
    state = RelayState()
    state.found_owner(StatusEntry(Up("server", 0), 5, "server", 5))
    state.syncing()
    assert state.begin(doc.answer()) == []
    assert state.live
    assert not state.need_sync
    return state


def passed(updates: Iterable[AcceptedUpdate]) -> list[RelayedUpdate]:
    return [RelayedUpdate(update.payload or b"", update.log_id) for update in updates]


def test_what_follows_is_passed_on() -> None:
    """As its bytes; and the vector goes with it."""
    doc = Doc()
    state = begun(doc)
    updates = [doc.update() for _ in range(5)]
    assert [state.arrived(update) for update in updates] == passed(updates)
    assert not state.need_sync
    assert crdt.vector_items(state.vector) == crdt.vector_items(doc.answer().vector)


@pytest.mark.parametrize("case", ["gap", "omitted", "junk", "new lease"])
def test_what_does_not_follow_asks_for_a_sync(case: str) -> None:
    """Its answer brings what was missed, and what comes meanwhile follows it."""
    doc = Doc()
    state = begun(doc)
    if case == "gap":
        doc.update()
    broken = doc.update(omitted=case == "omitted", lease=6 if case == "new lease" else 5)
    if case == "junk":
        broken = replace(broken, payload=b"junk")
    lease = max(5, broken.lease)
    assert state.arrived(broken) is None
    assert state.need_sync
    since = state.vector
    state.syncing()
    answer = doc.answer(since, lease=lease)
    meanwhile = doc.update(lease=lease)
    assert state.arrived(meanwhile) is None
    whose = broken.log_id if case == "omitted" else ""  # it is that one alone
    assert state.fill(answer) == [RelayedUpdate(answer.payload, whose), *passed([meanwhile])]
    later = doc.update(lease=lease)
    assert state.arrived(later) == passed([later])[0]


def test_what_a_sync_has_brought_is_not_a_gap() -> None:
    """An update that comes late is known by its content."""
    doc = Doc()
    state = begun(doc)
    doc.update()
    late = doc.update()
    state.syncing()
    assert state.arrived(late) is None
    assert state.fill(doc.answer(state.vector)) is not None
    assert state.arrived(late) is None
    assert not state.need_sync


def test_a_sync_that_brings_nothing_passes_nothing_on() -> None:
    """Members are not told what they have."""
    doc = Doc()
    state = begun(doc)
    state.syncing()
    assert state.fill(doc.answer(state.vector)) == []


def test_an_owner_that_lost_the_document_is_not_heard() -> None:
    """Its updates are dropped; only the new one's count."""
    doc = Doc()
    state = begun(doc)
    assert not state.note_lease(4)
    assert state.arrived(doc.update(lease=4)) is None
    assert not state.need_sync


@pytest.mark.parametrize("answer", ["another life", "a snapshot"])
def test_what_only_a_join_can_mend(answer: str) -> None:
    """Neither can be imported by members as they are."""
    doc = Doc()
    state = begun(doc)
    doc.update()
    state.syncing()
    if answer == "another life":
        assert state.fill(doc.answer(state.vector, generation=1)) is None
    else:
        assert state.fill(doc.answer()) is None


def test_too_much_during_a_sync_asks_for_another() -> None:
    """What is held has a bound."""
    doc = Doc()
    state = begun(doc)
    state.syncing()
    answer = doc.answer(state.vector)
    for _ in range(1100):
        state.arrived(doc.update("x"))
    state.fill(answer)
    assert state.need_sync


def test_statuses() -> None:
    """UP of a new owner asks for a sync, DOWN for an owner; before a sync nothing is passed on."""
    doc = Doc()
    state = begun(doc)
    state.note_status(StatusEntry(Up("server", 0), 7, "server", 5))
    assert (state.need_owner, state.need_sync) == (False, False)
    state.note_status(StatusEntry(Down(0), 8, "server", 5))
    assert (state.need_owner, state.need_sync) == (True, False)
    state.note_status(StatusEntry(Up("second", 0), 10, "second", 9))
    assert (state.need_owner, state.need_sync) == (False, True)
    state.stop()
    assert state.arrived(doc.update(lease=9)) is None


def test_reach() -> None:
    """It grows by updates and vectors, and knows what it covers."""
    page = Page()
    first, second = page.edit("one"), page.edit("two")
    reach = Reach(b"\x00")
    assert not reach.covers(first)
    reach.add(first)
    assert reach.covers(first)
    assert not reach.covers(second)
    assert not reach.includes(page.doc.oplog_vv.encode())
    reach.merge(page.doc.oplog_vv.encode())
    assert reach.covers(second)
    assert crdt.counters(reach.encode()) == {page.doc.peer_id: 6}


@pytest.mark.parametrize("data", [b"", b"junk", b"\xff" * 40])
def test_reach_takes_no_junk(data: bytes) -> None:
    """And stays as it was."""
    reach = Reach(b"\x00")
    for take in (reach.add, reach.covers):
        with pytest.raises(InvalidUpdate):
            take(data)
    for read in (reach.merge, reach.includes, Reach):
        with pytest.raises(InvalidUpdate):
            read(data)
    assert reach.encode() == b"\x00"

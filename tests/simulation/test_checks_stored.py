"""Checkers of stored objects and answers: silent over a good history, not over a broken one."""

import pytest

from lorogo_client.errors import DocumentDeleted, NotServed
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Down, Failed, Starting, Up
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.simulation.events import Sampled
from tests.simulation.story import (
    CLIENT,
    DOCUMENT,
    OTHER,
    SERVER,
    FakeRest,
    Story,
    Writer,
    client,
    fresh,
    tombstone,
)

DELETED = FakeRest({DOCUMENT: fresh(deleted_ns=7)})


# --- (6) deleted


def deleted(story: Story) -> int:
    """A document is deleted, and that is answered: its owner's token."""
    token = story.take()
    inbox = story.ask("delete")
    story.snapshot(b"", tombstone(SnapshotMetadata(lease=token)))
    story.reply(inbox, {"deleted_ns": 7})
    return token


async def test_deleted_stays_deleted() -> None:
    """A tombstone that the next owner claims, and a load finds, is fine; a document alive is not."""
    story = Story()
    deleted(story)
    story.refact(tombstone(SnapshotMetadata(lease=story.take(OTHER))), line=OTHER)
    assert await story.rest(DELETED) == ""
    assert await story.rest(FakeRest({DOCUMENT: fresh()})) == "deleted"


async def test_a_tombstone_without_a_request() -> None:
    """No server deletes a document by itself."""
    for verb, said in (("delete", ""), ("compact", "deleted")):
        story = Story()
        token = story.take()
        story.ask(verb)
        story.snapshot(b"", tombstone(SnapshotMetadata(lease=token)))
        assert story.broken == said


async def test_a_snapshot_over_a_tombstone() -> None:
    """Only a requested restore, with the next generation, takes the place of a tombstone."""
    for asks, generation, said in ((True, 1, ""), (False, 1, "deleted"), (True, 0, "deleted")):
        story = Story()
        token = deleted(story)
        if asks:
            story.ask("restore")
        story.refact(SnapshotMetadata(lease=token, generation=generation))
        assert story.broken == said


async def test_a_sync_of_what_is_deleted() -> None:
    """After a deletion was answered no owner gives content; one that lost the document before may."""
    for ahead, said in ((0, "deleted"), (-1, "")):
        story = Story()
        token = deleted(story)
        story.call("sync", {"mode": "snapshot", "payload": b"", "lease": token + ahead})
        assert story.broken == said
    story = Story()
    inbox = story.ask("sync")
    token = deleted(story)
    story.reply(inbox, {"mode": "snapshot", "payload": b"", "lease": token})
    assert story.broken == ""  # it was asked before


async def test_a_lost_tombstone() -> None:
    """A deletion that was answered survives the loss of its tombstone, unless a client opened it before."""
    story = Story()
    deleted(story)
    story.lose(subjects.SNAPSHOT_STREAM)
    assert await story.rest(FakeRest({DOCUMENT: fresh()})) == "deleted"
    story.now += 6
    story.take(OTHER)
    assert await story.rest(FakeRest({DOCUMENT: fresh()})) == ""


@pytest.mark.parametrize(
    ("opened", "again", "generation", "said"),
    [
        (True, False, 1, ""),
        (False, False, 1, "deleted"),
        (True, True, 1, "deleted"),  # a call requests it now
        (True, False, 0, "deleted"),  # no server that knows of the deletion would learn of it
    ],
)
async def test_a_tombstone_that_was_outlived(opened: bool, again: bool, generation: int, said: str) -> None:
    """It is restored, and the new incarnation replaces it; without one nothing does."""
    story = Story()
    token = deleted(story)
    story.lose(subjects.SNAPSHOT_STREAM)
    if opened:
        story.now += 6
        token = story.take(OTHER)
    story.snapshot(b"", tombstone(SnapshotMetadata(lease=token)))
    if again:
        story.reply(story.ask("delete"), {"deleted_ns": 7})
    story.snapshot(b"", SnapshotMetadata(lease=token, generation=generation))
    assert story.broken == said


async def test_erased_stays_erased() -> None:
    """Over an erasure nothing is stored that has content."""
    story, writer = Story(), Writer(1)
    writer.commit()
    token = deleted(story)
    erased = SnapshotMetadata(lease=token, deleted_ns=7, erased_ns=7)
    story.snapshot(b"", erased)
    assert story.broken == ""
    story.snapshot(writer.snapshot, erased)
    assert story.broken == "deleted"


# --- (7) snapshots


async def test_snapshots_go_forward() -> None:
    """A snapshot with more, and one with the same and a newer token, are fine."""
    story, writer = Story(), Writer(1)
    writer.commit()
    story.snapshot(writer.snapshot, SnapshotMetadata(lease=1))
    writer.commit()
    story.snapshot(writer.snapshot, SnapshotMetadata(lease=1))
    story.refact(SnapshotMetadata(lease=2))
    assert story.broken == ""


@pytest.mark.parametrize(
    "facts",
    [SnapshotMetadata(lease=2, generation=1), SnapshotMetadata(lease=1, generation=2)],
    ids=["back", "old"],
)
async def test_facts_that_go_back(facts: SnapshotMetadata) -> None:
    """A lower generation and a lower token are found."""
    story = Story()
    story.snapshot(b"", SnapshotMetadata(lease=2, generation=2))
    story.only("snapshots")
    story.refact(facts)
    assert story.broken == "snapshots"


async def test_a_snapshot_with_less() -> None:
    """A snapshot that lacks what it replaces is found; not after the broker lost the one before."""
    for loses, said in ((False, "snapshots"), (True, "")):
        story, writer = Story(), Writer(1)
        writer.commit()
        less = writer.snapshot
        writer.commit()
        story.snapshot(writer.snapshot, SnapshotMetadata())
        if loses:
            story.lose(subjects.SNAPSHOT_STREAM)
        story.snapshot(less, SnapshotMetadata())
        assert story.broken == said


async def test_bytes_of_the_current_snapshot() -> None:
    """The bytes of the current snapshot stay; those of the one before may go."""
    story, writer = Story(), Writer(1)
    writer.commit()
    old = story.snapshot(writer.snapshot, SnapshotMetadata())
    new = story.snapshot(writer.snapshot, SnapshotMetadata())
    story.drop_chunks(old)
    assert story.broken == ""
    story.drop_chunks(new)
    assert story.broken == "snapshots"


# --- (9) statuses


async def test_a_legal_path() -> None:
    """The life cycle of a status: requested, taken, UP, reclaimed, DOWN, stale, ERROR, reset."""
    story = Story()
    token = story.take()
    story.up(SERVER, token)
    story.status("operator", Down(0))
    story.up(SERVER, token)
    story.status(SERVER, Down(0), server=SERVER, lease=token)
    for count in range(4):
        story.ask_for(f"again{count}", count=count)
        story.status(OTHER, Starting(f"again{count}", count, 0), server=OTHER)
        story.now += 6
    story.ask_for("again4", count=4)
    story.status(OTHER, Failed("trace", 0), server=OTHER, failures=4)
    story.status(SERVER, Down(0))
    story.take(OTHER)
    assert story.broken == ""


async def test_a_path_of_servers_alone() -> None:
    """The taking server moves it: over nothing, over DOWN, over a STARTING that stood; then ERROR."""
    story = Story()
    token = story.status(SERVER, Starting("a", 0, 0), server=SERVER)
    story.up(SERVER, token)
    story.status(SERVER, Down(0), server=SERVER, lease=token)
    for count in (0, 1, 2, 3, 0):  # interrupted: the count restarts
        story.status(OTHER, Starting(f"again{count}", count, 0), server=OTHER)
        story.now += 6
    story.status(SERVER, Failed("trace", 0), server=SERVER, failures=4)
    assert story.broken == ""


async def test_a_lost_key_is_acquired_again() -> None:
    """The owner whose key the bucket lost writes it as if for the first time; no other server does."""
    for loses, said in ((True, ""), (False, "statuses")):
        story = Story()
        if loses:
            story.take()
            story.lose(subjects.STATUS_STREAM)
        story.status(SERVER, Up(SERVER, 0), server=SERVER)
        assert story.broken == said


async def test_statuses_that_are_not_legal() -> None:
    """Each of these writes is against the rules, and found."""

    def too_early(story: Story) -> None:
        story.ask_for("a")
        story.now += 2
        story.ask_for("b")

    def wrong_count(story: Story) -> None:
        story.ask_for("a", count=2)

    def out_of_error(story: Story) -> None:
        story.status("operator", Failed("trace", 0))
        story.ask_for("a")

    def taken_twice(story: Story) -> None:
        story.ask_for("a")
        story.status(SERVER, Starting("a", 0, 0), server=SERVER)
        story.status(OTHER, Starting("a", 0, 0), server=OTHER)

    def another_operation(story: Story) -> None:
        story.ask_for("a")
        story.status(SERVER, Starting("b", 0, 0), server=SERVER)

    def taken_too_early(story: Story) -> None:
        story.status(SERVER, Starting("a", 0, 0), server=SERVER)
        story.now += 2
        story.status(OTHER, Starting("b", 1, 0), server=OTHER)

    def taken_too_often(story: Story) -> None:
        for count in range(5):
            story.status(SERVER, Starting(f"again{count}", count, 0), server=SERVER)
            story.now += 6

    def failed_and_not_counted(story: Story) -> None:
        story.status(SERVER, Starting("a", 0, 0), server=SERVER)
        story.now += 6
        story.ask_for("b", count=0)

    def counted_by_who_takes_it(story: Story) -> None:
        story.ask_for("a")
        story.now += 6
        story.status(SERVER, Starting("b", 1, 0), server=SERVER)

    def given_up_while_it_loads(story: Story) -> None:
        for count in range(4):
            story.now += 6
            story.status(SERVER, Starting(f"again{count}", count, 0), server=SERVER)
        story.status(OTHER, Failed("trace", 0), server=OTHER, failures=4)

    def given_up_for_interruptions(story: Story) -> None:
        for count in range(4):
            story.status(SERVER, Starting(f"again{count}", count, 0), server=SERVER)
            story.now += 6
        story.status(OTHER, Failed("trace", 0), server=OTHER)

    def failed_more_often_than_tried(story: Story) -> None:
        story.status(SERVER, Starting("a", 0, 0), server=SERVER, failures=2)

    def up_over_nothing(story: Story) -> None:
        story.up(SERVER, 3)

    def over_the_down_of_another(story: Story) -> None:
        token = story.take()
        story.up(SERVER, token)
        other = story.take(OTHER)
        story.status(OTHER, Down(0), server=OTHER, lease=other)
        story.up(SERVER, token)

    def down_by_a_client(story: Story) -> None:
        story.take()
        story.status(CLIENT, Down(0))

    def down_of_another(story: Story) -> None:
        token = story.take()
        story.status(OTHER, Down(0), server=OTHER, lease=token)

    def given_up_too_early(story: Story) -> None:
        story.ask_for("a")
        story.status(SERVER, Failed("trace", 0), server=SERVER)

    def in_the_name_of_another(story: Story) -> None:
        story.ask_for("a")
        story.status(SERVER, Starting("a", 0, 0), server=OTHER)

    for wrong in (
        too_early,
        wrong_count,
        out_of_error,
        taken_twice,
        another_operation,
        taken_too_early,
        taken_too_often,
        failed_and_not_counted,
        counted_by_who_takes_it,
        given_up_while_it_loads,
        given_up_for_interruptions,
        failed_more_often_than_tried,
        up_over_nothing,
        over_the_down_of_another,
        down_by_a_client,
        down_of_another,
        given_up_too_early,
        in_the_name_of_another,
    ):
        story = Story()
        story.only("statuses")
        wrong(story)
        assert story.broken == "statuses", wrong.__name__


# --- (10) honest


def _says(story: Story, state: str, *, unsaved: int = 0, end: int = 1, problem: str = "") -> str:
    story.only("honest")
    story.record._tell(Sampled(0, story.now, CLIENT, DOCUMENT, state, unsaved, problem, 1, end))
    return story.broken


async def test_saved_is_said_after_the_ack() -> None:
    """`saved`, nothing unsaved, and the end of a flush need the ACK; `saving` with a count does not."""
    for hears in (True, False):
        for state, unsaved in (("saved", 0), ("connecting", 0), ("flushed", 0), ("saving", 1)):
            story, writer = Story(), Writer(1)
            token = story.take()
            update = writer.commit()
            (sequence,) = story.send(update, "one")
            if hears:
                story.ack(update, "one", sequence, token)
            expected = "" if hears or unsaved else "honest"
            assert _says(story, state, unsaved=unsaved) == expected


async def test_saved_with_something_unsaved() -> None:
    """`saved` with a count, or after a failure for good, is a lie."""
    assert _says(Story(), "saved", unsaved=1, end=0) == "honest"
    assert _says(Story(), "saved", end=0, problem="deleted") == "honest"
    assert _says(Story(), "saved", end=0, problem="store-failed") == ""


# --- (11) recovered


async def test_what_is_not_at_rest() -> None:
    """A session that saves for ever, or failed without a cause, and a document in ERROR, are found."""
    doc = Writer(1).doc
    for facts, said in (
        ({}, ""),
        ({"state": "saving", "unsaved": 1}, "recovered"),
        ({"state": "connecting"}, "recovered"),
        ({"state": "saving", "problem": NotServed(DOCUMENT, "why")}, "recovered"),
        ({"state": "saving", "problem": DocumentDeleted(DOCUMENT)}, "recovered"),
    ):
        world = FakeRest({DOCUMENT: fresh()}, [client(CLIENT, doc, **facts)])
        assert await Story().rest(world) == said
    story = Story()
    story.status("operator", Failed("trace", 0))
    assert await story.rest(FakeRest({DOCUMENT: fresh()})) == "recovered"

"""Histories with purges, safe and not: what leaves the WAL is stored elsewhere."""

from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.simulation.story import SERVER, Story, Writer, tombstone


async def test_a_purge_of_what_is_not_stored() -> None:
    """Purged updates are in the stored snapshot, or were in the one that the broker lost."""
    for content, loses, said in ((True, False, ""), (False, False, "purged"), (True, True, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        (sequence,) = story.send(writer.commit(), "one")
        story.snapshot(writer.snapshot if content else b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        if loses:
            story.lose(subjects.SNAPSHOT_STREAM)
        story.purge([sequence])
        assert story.broken == said


async def test_a_purge_of_what_waits() -> None:
    """An update that waits for what it builds on is not purged; with a tombstone everything may go."""
    for dead, said in ((False, "purged"), (True, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        writer.commit()
        update = writer.commit()
        (sequence,) = story.send(update, "two")
        story.nack(update, "two", Reason.MISSING_DEPENDENCIES)
        facts = SnapshotMetadata(lease=token)
        story.ask("delete")
        story.snapshot(b"", tombstone(facts) if dead else facts)
        story.up(SERVER, token)
        story.purge([sequence])
        assert story.broken == said


async def test_a_purge_of_a_copy() -> None:
    """Of an update that waits and was sent twice, one copy may be purged; not both."""
    story, writer = Story(), Writer(1)
    token = story.take()
    writer.commit()
    update = writer.commit()
    (first,), (second,) = story.send(update, "two"), story.send(update, "two")
    story.nack(update, "two", Reason.MISSING_DEPENDENCIES)
    story.snapshot(b"", SnapshotMetadata(lease=token))
    story.up(SERVER, token)
    story.purge([first])
    assert story.broken == ""
    story.purge([second])
    assert story.broken == "purged"


async def test_a_purge_of_a_part_of_the_copies() -> None:
    """Of an accepted update in chunks that is not stored, a whole copy stays: its last chunk is none."""
    for copies, said in ((1, "purged"), (2, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        update = writer.commit("long")
        sent = [story.send(update, "one", size=64) for _ in range(copies)]
        assert len(sent[0]) > 1
        story.accept(update, "one", token)
        story.snapshot(b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        story.purge(sent[0][:-1])
        assert story.broken == said


async def test_a_purge_of_what_the_broker_left() -> None:
    """Of an accepted update whose last chunk the broker lost, the others may go: no load can read them."""
    for lost, said in ((0, "purged"), (1, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        update = writer.commit("long")
        sent = story.send(update, "one", size=64)
        story.accept(update, "one", token)
        story.snapshot(b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        if lost:
            story.lose_end(lost)
        story.purge(sent[: len(sent) - lost])
        assert story.broken == said


async def test_another_message_with_the_sequence_of_a_copy() -> None:
    """A copy that the stream lost does not count because something else has its sequence now."""
    for again, said in ((True, ""), (False, "purged")):
        story, writer = Story(), Writer(1)
        token = story.take()
        writer.commit()
        update = writer.commit()
        (first,), (second,) = story.send(update, "two"), story.send(update, "two")
        story.lose_end(1)
        assert story.send(update if again else Writer(2).commit(), "two" if again else "else") == [second]
        story.snapshot(b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        story.purge([first])
        assert story.broken == said


async def test_a_purge_of_what_was_given_up() -> None:
    """After a copy to loro-rejected the older messages may be purged; a later copy waits again."""
    for later, said in ((False, ""), (True, "purged")):
        story, writer = Story(), Writer(1)
        token = story.take()
        writer.commit()
        update = writer.commit()
        (first,), (second,) = story.send(update, "two"), story.send(update, "two")
        story.keep_copy(second)
        story.purge([second], how="delete")
        gone = story.send(update, "two") if later else [first]
        story.snapshot(b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        story.purge([first, *gone] if later else gone)
        assert story.broken == said


async def test_a_purge_of_what_is_not_whole() -> None:
    """Chunks of an update are not purged while the owner waits for the others; after that they may be."""
    for seconds, said in ((2.0, "purged"), (11.0, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        story.now += 1
        sequence = story.chunk(next(iter(chunks.split(writer.commit("long"), "one", chunk_bytes_max=8))))
        story.now += seconds
        story.snapshot(b"", SnapshotMetadata(lease=token))
        story.up(SERVER, token)
        story.purge([sequence])
        assert story.broken == said


async def test_a_deletion_without_a_copy() -> None:
    """A message is deleted from the WAL only after it was copied to loro-rejected; it, not one before it."""
    for copies, loses, said in ((True, False, ""), (False, False, "purged"), (True, True, "purged")):
        story = Story()
        story.take()
        (sequence,) = story.send(b"garbage", "one")
        if copies:
            story.keep_copy(sequence)
        if loses:
            story.lose_end(1)
            assert story.send(b"other garbage", "two") == [sequence]
        story.purge([sequence], how="delete")
        assert story.broken == said

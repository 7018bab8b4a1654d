"""Every checker is silent over a good history, and speaks over a broken one."""

from loro import LoroDoc

from lorogo_client.errors import DocumentDeleted, UpdateRefused
from lorogo_protocol.messages import chunks, subjects
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Up
from lorogo_server.snapshot_metadata import SnapshotMetadata
from tests.simulation.story import (
    CLIENT,
    DOCUMENT,
    OTHER,
    READER,
    SERVER,
    FakeRest,
    Story,
    Writer,
    client,
    fresh,
    tombstone,
)


def at_rest(writer: Writer | None, *others: Writer) -> FakeRest:
    """A world in which these have the document open, and a fresh load gives what the first has."""
    docs = [other.doc for other in others]
    clients = [client(f"client-{number}", doc) for number, doc in enumerate(docs)]
    return FakeRest({DOCUMENT: fresh(LoroDoc() if writer is None else writer.doc)}, clients)


def acked(story: Story, *, how: str = "journal") -> tuple[Writer, int]:
    """An update that went all the way, and the owner's token."""
    writer = Writer(1)
    token = story.take()
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    story.accept(update, "one", token)
    story.ack(update, "one", sequence, token, how=how)
    return writer, token


# --- (1) acked


async def test_acked_and_there() -> None:
    """ACKed content that is in a fresh load causes no report."""
    story = Story()
    writer, _ = acked(story)
    assert await story.rest(at_rest(writer, writer)) == ""


async def test_acked_and_missing() -> None:
    """An ACKed update that a fresh load does not have is found; also after a loss, since a journal has it."""
    story = Story()
    acked(story)
    story.lose(subjects.WAL_STREAM)
    assert await story.rest(at_rest(None)) == "acked"


async def test_acked_by_the_stream_alone() -> None:
    """An ACK with durability `stream` holds until the stream loses messages."""
    story = Story()
    acked(story, how="stream")
    assert await story.rest(at_rest(None)) == "acked"
    story = Story()
    acked(story, how="stream")
    story.lose(subjects.WAL_STREAM)
    assert await story.rest(at_rest(None)) == ""


async def test_acked_and_deleted() -> None:
    """A deletion after it ends the promise, and a restore renews it."""
    story = Story()
    writer, token = acked(story)
    facts = SnapshotMetadata(lease=token)
    story.ask("delete")
    story.snapshot(writer.snapshot, tombstone(facts))
    assert await story.rest(FakeRest({DOCUMENT: fresh(deleted_ns=7)})) == ""
    story.ask("restore")
    story.refact(SnapshotMetadata(lease=token, generation=1))
    assert await story.rest(at_rest(writer, writer)) == ""
    assert await story.rest(at_rest(None)) == "acked"


async def test_an_older_tombstone_buries_nothing_that_was_acked() -> None:
    """The broker lost the tombstone, the document has a new life, and a journal brings the tombstone back."""
    for asks_again, said in ((False, "acked"), (True, "")):
        story = Story()
        facts = tombstone(SnapshotMetadata(lease=story.take()))
        story.call("delete", {"deleted_ns": 7})
        story.snapshot(b"", facts)
        story.lose(subjects.SNAPSHOT_STREAM)
        story.now += 6
        _, token = acked(story)
        deleted_ns = 8 if asks_again else 7
        story.snapshot(b"", SnapshotMetadata(lease=token, deleted_ns=deleted_ns))
        assert await story.rest(FakeRest({DOCUMENT: fresh(deleted_ns=deleted_ns)})) == said


async def test_receipts_count_as_acks() -> None:
    """A patch is as safe as an ACKed update: its answer is a receipt."""
    story, writer = Story(), Writer(1)
    token = story.take()
    (sequence,) = story.send(writer.commit(), "patch", line=SERVER)
    story.call("patch", {"sequence": sequence, "lease": token, "durability": "journal"})
    assert await story.rest(at_rest(None)) == "acked"


async def test_restored_generation() -> None:
    """A generation that was restored is stored at the end."""
    for found, said in ((1, ""), (0, "acked")):
        story = Story()
        story.call("restore", {"generation": 1})
        assert await story.rest(FakeRest({DOCUMENT: fresh(generation=found)})) == said


async def test_garbage_acked() -> None:
    """No server may ACK bytes that Loro cannot read."""
    story = Story()
    token = story.take()
    (sequence,) = story.send(b"garbage", "one")
    story.ack(b"garbage", "one", sequence, token)
    assert story.broken == "acked"


# --- (2) converge


async def test_replicas_that_differ() -> None:
    """Two sessions with other histories are found, and one that lacks what a fresh load has."""
    one, two = Writer(1), Writer(2)
    update = one.commit()
    assert await Story().rest(at_rest(one, one, Writer(3).took(update))) == ""
    assert await Story().rest(at_rest(one, one, two)) == "converge"
    assert await Story().rest(at_rest(one, two)) == "converge"
    assert await Story().rest(at_rest(two, one)) == "converge"


async def test_replicas_with_other_content() -> None:
    """The same version vector with other content is found."""
    one, two = Writer(1), Writer(1)
    one.commit("a")
    two.commit("b")
    assert await Story().rest(at_rest(one, one, two)) == "converge"
    assert await Story().rest(at_rest(one, two)) == "converge"


async def test_a_failed_session_is_no_replica() -> None:
    """A session whose document was deleted need not be like the others."""
    story, writer = Story(), Writer(1)
    writer.commit()
    token = story.take()
    story.ask("delete")
    story.snapshot(b"", tombstone(SnapshotMetadata(lease=token)))
    story.ask("restore")
    story.refact(SnapshotMetadata(lease=token, generation=1))
    stale = client(CLIENT, writer.doc, problem=DocumentDeleted(DOCUMENT))
    assert await story.rest(FakeRest({DOCUMENT: fresh(generation=1)}, [stale])) == ""


async def test_what_an_owner_dropped_may_be_loaded() -> None:
    """A fresh load may have more than a replica if no owner ever accepted it, and not otherwise."""
    for accepts, said in ((False, ""), (True, "converge")):
        story, writer = Story(), Writer(1)
        token = story.take()
        update = writer.commit("a long text")
        story.send(update, "one", size=8)
        if accepts:
            story.accept(update, "one", token)
        assert await story.rest(at_rest(writer, Writer(2))) == said


# --- (3) fenced


async def test_an_old_token_on_a_status() -> None:
    """A status with an old token, after a newer one has written, is found."""
    story = Story()
    old = story.take()
    story.now += 6
    new = story.take(OTHER)
    story.up(OTHER, new)
    assert story.broken == ""
    story.up(SERVER, old)
    assert story.broken == "fenced"


async def test_an_old_token_on_a_snapshot() -> None:
    """An owner may store until the next one is UP, and not after."""
    story = Story()
    old = story.take()
    story.snapshot(b"", SnapshotMetadata(lease=old))
    story.ask_for("op")
    story.snapshot(b"", SnapshotMetadata(lease=old))
    story.now += 6
    story.take(OTHER)
    assert story.broken == ""
    story.snapshot(b"", SnapshotMetadata(lease=old))
    assert story.broken == "fenced"


async def test_an_ack_without_an_update() -> None:
    """An ACK of something that was never whole in the WAL is found, and one at a place where it never was."""
    story, writer = Story(), Writer(1)
    token = story.take()
    update = writer.commit()
    story.ack(update, "one", 1, token)
    assert story.broken == "fenced"
    story = Story()
    token = story.take()
    (sequence,) = story.send(update, "one")
    story.ack(update, "one", sequence + 1, token)
    assert story.broken == "fenced"


async def test_an_ack_of_half_an_update() -> None:
    """An ACK while chunks are missing is found."""
    story, writer = Story(), Writer(1)
    token = story.take()
    update = writer.commit("a long text")
    parts = list(chunks.split(update, "one", chunk_bytes_max=16))
    sequences = [story.chunk(part) for part in parts[1:]]
    story.ack(update, "one", sequences[-1], token)
    assert story.broken == "fenced"


async def test_an_ack_with_the_token_of_another() -> None:
    """An ACK carries a token that its server has got for this document."""
    story, writer = Story(), Writer(1)
    token = story.take()
    update = writer.commit()
    (sequence,) = story.send(update, "one")
    story.ack(update, "one", sequence, token, line=OTHER)
    assert story.broken == "fenced"


async def test_an_owner_that_has_not_claimed_the_snapshot_again() -> None:
    """An owner whose key was lost is UP again at once; a snapshot brought back then has no token yet."""
    story, writer = Story(), Writer(1)
    story.take()
    writer.commit()
    story.lose(subjects.STATUS_STREAM)
    story.status(SERVER, Up(SERVER, 0), server=SERVER)
    story.snapshot(writer.snapshot, SnapshotMetadata(), OTHER)
    assert story.broken == ""


async def test_a_purge_without_a_confirmed_lease() -> None:
    """A server that purges has written its status after it stored the snapshot."""
    for confirms, said in ((True, ""), (False, "fenced")):
        story, writer = Story(), Writer(1)
        token = story.take()
        (sequence,) = story.send(writer.commit(), "one")
        story.snapshot(writer.snapshot, SnapshotMetadata(lease=token))
        if confirms:
            story.up(SERVER, token)
        story.purge([sequence])
        assert story.broken == said


async def test_a_lost_bucket_begins_again() -> None:
    """Tokens of a status bucket that was lost are compared with none that came after."""
    story = Story()
    for _ in range(3):
        story.up(SERVER, story.take())
        story.now += 6
    story.snapshot(b"", SnapshotMetadata(lease=50))
    story.record.tokens[50] = {(SERVER, DOCUMENT)}
    story.lose(subjects.STATUS_STREAM)
    token = story.take(OTHER)
    assert token < 50
    story.snapshot(b"", SnapshotMetadata(lease=token), line=OTHER)
    assert story.broken == ""


# --- (4) loadable


async def test_accepted_and_not_loadable() -> None:
    """A published update is in a fresh load, unless the stream lost it before it was ACKed."""
    for loses, said in ((False, "loadable"), (True, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        update = writer.commit()
        story.send(update, "one")
        story.accept(update, "one", token)
        if loses:
            story.lose(subjects.WAL_STREAM)
        assert await story.rest(at_rest(None)) == said
        assert await story.rest(at_rest(writer)) == ""


async def test_accepted_and_never_stored() -> None:
    """No update is published as accepted that was not whole in the WAL before."""
    story, writer = Story(), Writer(1)
    token = story.take()
    story.accept(writer.commit(), "one", token)
    assert story.broken == "loadable"


# --- (5) refused


async def test_refused_and_shown() -> None:
    """A permanently refused update is never published as accepted."""
    for reason, said in ((Reason.HISTORY_TRIMMED, "refused"), (Reason.MISSING_DEPENDENCIES, "")):
        story, writer = Story(), Writer(1)
        token = story.take()
        update = writer.commit()
        story.send(update, "one")
        story.nack(update, "one", reason)
        story.accept(update, "one", token)
        assert story.broken == said


async def test_refused_and_there() -> None:
    """Operations that were refused for good are in no replica but the sender's."""
    writer = Writer(1)
    update = writer.commit()

    def story() -> Story:
        refused = Story()
        refused.take()
        refused.send(update, "one")
        refused.nack(update, "one", Reason.HISTORY_TRIMMED)
        return refused

    refusal = UpdateRefused("one", Reason.HISTORY_TRIMMED, "")
    mine = client(CLIENT, writer.doc, state="saving", unsaved=1, problem=refusal)
    theirs = client(READER, writer.doc, problem=DocumentDeleted(DOCUMENT))
    checker = "refused"
    assert await story().rest(FakeRest({DOCUMENT: fresh()}, [mine])) == ""
    assert await story().rest(FakeRest({DOCUMENT: fresh(writer.doc)}, [mine])) == checker
    refused = story()
    refused.only(checker)
    assert await refused.rest(FakeRest({DOCUMENT: fresh()}, [mine, theirs])) == checker


async def test_refused_and_sent_in_another_way() -> None:
    """The same operations under another id, accepted, are fine."""
    story, writer = Story(), Writer(1)
    token = story.take()
    update = writer.commit()
    story.send(update, "one")
    story.nack(update, "one", Reason.HISTORY_TRIMMED)
    story.send(update, "two", READER)
    story.accept(update, "two", token)
    assert await story.rest(at_rest(writer, writer)) == ""

"""The epoch of the WAL: a stream that went back is found out, also when it has grown since."""

from lorogo_protocol.messages import subjects
from lorogo_protocol.position import Position
from lorogo_server.ownership.epoch import EpochTracker
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Stream, Transport
from lorogo_transport.stores import topology


async def world() -> tuple[MemoryNats, Transport, Stream]:
    nats = MemoryNats()
    line = nats.connect("server")
    for spec in topology.specs():
        await line.ensure(spec)
    return nats, line, line.stream(subjects.WAL_STREAM)


async def grow(wal: Stream, count: int) -> None:
    for _ in range(count):
        await wal.append(subjects.wal("doc"), b"")


async def see(epochs: EpochTracker, wal: Stream, sequence: int) -> None:
    stored = await wal.get(sequence)
    assert stored is not None
    epochs.saw(Position(epochs.current, stored.sequence, stored.time_ns))


async def test_messages_after_a_reconnect_do_not_hide_a_loss_before_it() -> None:
    """The witness is kept until it was compared: the stream has grown beyond it while we were away."""
    nats, line, wal = await world()
    epochs = EpochTracker(line)
    await epochs.check()
    await grow(wal, 5)
    await see(epochs, wal, 5)
    epochs.doubt()  # the connection was lost
    nats.rewind(subjects.WAL_STREAM, 2)
    await grow(wal, 8)
    await see(epochs, wal, 10)
    assert await epochs.check()
    assert epochs.current == 2
    await grow(wal, 1)
    await see(epochs, wal, 11)
    assert epochs.known.position.sequence == 11
    assert not await epochs.check()  # what was compared is not held against it for ever


async def test_a_message_received_in_doubt_is_a_witness_too() -> None:
    """The stream goes back a second time before any server could read it: both times count."""
    nats, line, wal = await world()
    epochs = EpochTracker(line)
    await epochs.check()
    epochs.doubt()
    await grow(wal, 5)
    await see(epochs, wal, 5)
    epochs.doubt()
    nats.rewind(subjects.WAL_STREAM, 2)
    await grow(wal, 8)
    await see(epochs, wal, 10)
    assert await epochs.check()


async def test_no_more_witnesses_are_held_than_can_be_asked() -> None:
    """Of a connection that is lost again and again the first and the last are kept."""
    _, line, wal = await world()
    epochs = EpochTracker(line)
    await grow(wal, 100)
    for sequence in range(1, 101):
        await see(epochs, wal, sequence)
        epochs.doubt()
    assert [epochs._held[0].position.sequence, epochs._held[-1].position.sequence, len(epochs._held)] == [
        1,
        100,
        16,
    ]
    assert not await epochs.check()
    assert epochs._held == []


async def test_a_connection_that_is_lost_during_a_check_is_in_doubt_after_it() -> None:
    """Only a check that began after the last doubt settles it."""
    nats, line, wal = await world()
    epochs = EpochTracker(line)
    await grow(wal, 5)
    await epochs.check()
    judge = epochs._judge

    async def interrupted(*given: object) -> object:
        wanted = await judge(*given)  # type: ignore[arg-type]  # as it was called
        epochs.doubt()
        return wanted

    epochs._judge = interrupted  # type: ignore[assignment,method-assign]  # once
    await epochs.check()
    epochs._judge = judge  # type: ignore[method-assign]  # as it was
    nats.rewind(subjects.WAL_STREAM, 2)
    await grow(wal, 8)
    await see(epochs, wal, 10)
    assert await epochs.check()


async def test_the_witness_of_another_does_not_stand_for_ours() -> None:
    """A server that came after the loss recorded what it saw; ours is asked all the same."""
    nats, line, wal = await world()
    ours, other = EpochTracker(line), EpochTracker(line)
    await grow(wal, 5)
    await ours.check()
    nats.rewind(subjects.WAL_STREAM, 2)
    await nats.connect("other").stream(subjects.STATUS_STREAM).purge(subjects.EPOCH_KEY)
    await grow(wal, 8)
    await other.check()
    assert other.current == 1  # it cannot know
    assert await ours.check()
    assert ours.current == 2
    assert await other.check()
    assert other.current == 2


async def test_two_witnesses_of_one_sequence_are_both_asked() -> None:
    """A record of another server after the loss may have the very sequence that we knew before it."""
    nats, line, wal = await world()
    ours, other = EpochTracker(line), EpochTracker(line)
    await grow(wal, 5)
    await ours.check()
    nats.rewind(subjects.WAL_STREAM, 2)
    await nats.connect("other").stream(subjects.STATUS_STREAM).purge(subjects.EPOCH_KEY)
    await grow(wal, 3)
    await other.check()
    assert other.known.position.sequence == ours.known.position.sequence == 5
    assert await ours.check()

"""The bus, on real NATS and in memory alike."""

import asyncio

import pytest

from lorogo_transport.errors import NoResponders, RequestTimeout, TooLarge
from lorogo_transport.ports import Message
from tests.transport.support import AnyTransport, Collector, Connect


async def test_a_published_message_reaches_every_subscriber_in_order(dial: Connect, unique: str) -> None:
    """Messages arrive in the order in which they were sent, with subject, body, headers and reply."""
    sender, receiver = await dial(), await dial()
    got = Collector()
    await receiver.bus.subscribe(f"{unique}.*", got)
    await receiver.bus.barrier()
    for number in range(500):
        await sender.bus.publish(
            f"{unique}.a", b"%d" % number, headers={"LORO_X": f"ü{number}"}, reply="back.here"
        )
    messages = await got.wait(500)
    assert [message.data for message in messages] == [b"%d" % number for number in range(500)]
    assert messages[7] == Message(f"{unique}.a", b"7", {"LORO_X": "ü7"}, "back.here")


async def test_order_holds_across_subscriptions(dial: Connect, unique: str) -> None:
    """Handlers of one connection are called in the order of arrival, whichever subscription it was for."""
    sender, receiver = await dial(), await dial()
    got = Collector()
    await receiver.bus.subscribe(f"{unique}.a", got)
    await receiver.bus.subscribe(f"{unique}.b", got)
    await receiver.bus.barrier()
    for number in range(200):
        await sender.bus.publish(f"{unique}.{'ab'[number % 2]}", b"%d" % number)
    await got.wait(200)
    assert got.bodies == [b"%d" % number for number in range(200)]


async def test_a_subscription_is_effective_when_a_later_request_is_answered(
    dial: Connect, unique: str
) -> None:
    """Nothing that is sent overtakes it, so who asks something afterwards needs no barrier."""
    sender, receiver = await dial(), await dial()
    answers: list[asyncio.Future[None]] = []

    def answer(message: Message) -> None:
        answers.append(asyncio.ensure_future(sender.bus.publish(message.reply)))

    await sender.bus.subscribe(f"{unique}.ask", answer)
    await sender.bus.barrier()
    for number in range(50):
        got = Collector()
        await receiver.bus.subscribe(f"{unique}.{number}", got)
        await receiver.bus.request(f"{unique}.ask", timeout=5)
        await sender.bus.publish(f"{unique}.{number}")
        await got.wait(1)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("x.*", ["x.a", "x.b"]),
        ("x.>", ["x.a", "x.b", "x.b.c"]),
        ("x.*.c", ["x.b.c"]),
        ("x.a", ["x.a"]),
        ("*.a", ["x.a"]),
        ("*.z", []),
    ],
)
async def test_wildcards(transport: AnyTransport, unique: str, pattern: str, matching: list[str]) -> None:
    """`*` stands for one token and `>` for one or more at the end."""
    got = Collector()
    await transport.bus.subscribe(f"{unique}.{pattern}", got)
    for subject in ("x", "x.a", "x.b", "x.b.c", "y.a.b"):
        await transport.bus.publish(f"{unique}.{subject}")
    await transport.bus.barrier()
    await transport.bus.barrier()
    assert [message.subject.removeprefix(f"{unique}.") for message in got.messages] == matching


async def test_a_queue_group_shares(dial: Connect, unique: str) -> None:
    """Each message goes to one member of a queue group, and to every plain subscriber."""
    sender, one, two = await dial(), await dial(), await dial()
    members = [Collector(), Collector()]
    plain = Collector()
    for transport, member in zip((one, two), members, strict=True):
        await transport.bus.subscribe(unique, member, queue="workers")
        await transport.bus.barrier()
    await sender.bus.subscribe(unique, plain)
    for number in range(100):
        await sender.bus.publish(unique, b"%d" % number)
    await sender.bus.barrier()
    for transport in (one, two, sender):
        await transport.bus.barrier()
    assert len(plain.messages) == 100
    assert sorted(members[0].bodies + members[1].bodies) == sorted(plain.bodies)
    assert members[0].messages
    assert members[1].messages


async def test_a_request_gets_its_own_answer(dial: Connect, unique: str) -> None:
    """A hundred requests under way at once each get the answer that was meant for them."""
    asker, answerer = await dial(), await dial()
    tasks: list[asyncio.Task[None]] = []

    def answer(message: Message) -> None:
        reply = answerer.bus.publish(message.reply, message.data[::-1], headers=message.headers)
        tasks.append(asyncio.ensure_future(reply))

    await answerer.bus.subscribe(unique, answer)
    await answerer.bus.barrier()
    answers = await asyncio.gather(
        *(
            asker.bus.request(unique, b"n%d" % number, headers={"N": str(number)}, timeout=5)
            for number in range(100)
        )
    )
    assert [answer.data for answer in answers] == [(b"n%d" % number)[::-1] for number in range(100)]
    assert [answer.headers["N"] for answer in answers] == [str(number) for number in range(100)]
    await asyncio.gather(*tasks)


async def test_no_subscriber(transport: AnyTransport, unique: str) -> None:
    """A request without a subscriber fails at once."""
    async with asyncio.timeout(2):
        with pytest.raises(NoResponders):
            await transport.bus.request(unique, timeout=30)


async def test_no_answer_in_time(transport: AnyTransport, unique: str) -> None:
    """A request without an answer fails at its deadline."""
    got = Collector()
    await transport.bus.subscribe(unique, got)
    with pytest.raises(RequestTimeout):
        await transport.bus.request(unique, timeout=0.05)
    assert len(got.messages) == 1


async def test_an_inbox_takes_many_answers(dial: Connect, unique: str) -> None:
    """`new_inbox` is a subject of one's own: what is published there comes to its subscriber only."""
    asker, other = await dial(), await dial()
    mine, theirs = Collector(), Collector()
    inbox = asker.bus.new_inbox()
    assert inbox not in (asker.bus.new_inbox(), other.bus.new_inbox())
    await asker.bus.subscribe(inbox, mine)
    await other.bus.subscribe(other.bus.new_inbox(), theirs)
    await asker.bus.barrier()
    for number in range(3):
        await other.bus.publish(inbox, b"%d" % number)
    await mine.wait(3)
    assert mine.bodies == [b"0", b"1", b"2"]
    assert not theirs.messages


async def test_too_large(transport: AnyTransport, unique: str) -> None:
    """Above max_payload, headers included, nothing is sent; the limit itself fits."""
    got = Collector()
    await transport.bus.subscribe(unique, got)
    limit = transport.bus.max_payload
    await transport.bus.publish(unique, bytes(limit))
    with pytest.raises(TooLarge):
        await transport.bus.publish(unique, bytes(limit + 1))
    with pytest.raises(TooLarge):
        await transport.bus.publish(unique, bytes(limit), headers={"A": "b"})
    with pytest.raises(TooLarge):
        await transport.bus.request(unique, bytes(limit + 1), timeout=1)
    await got.wait(1)
    await transport.bus.barrier()
    assert [len(body) for body in got.bodies] == [limit]


@pytest.mark.parametrize(
    "headers",
    [
        {"A": "b\r\nC: d"},
        {"A": "b\n"},
        {"A": "\r"},
        {"": "b"},
        {"A B": "c"},
        {"A:": "c"},
        {"ä": "c"},
        {"A\r\nB": "c"},
    ],
)
async def test_headers_cannot_break_the_wire(transport: AnyTransport, headers: dict[str, str]) -> None:
    """A header that would end its line, or is no name, is refused."""
    with pytest.raises(ValueError, match="header"):
        await transport.bus.publish("a", headers=headers)


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0\r\n\r\n", "a\tb"])
async def test_subjects_cannot_break_the_wire(transport: AnyTransport, subject: str) -> None:
    """A subject that would end its line is refused."""
    with pytest.raises(ValueError, match="subject"):
        await transport.bus.publish(subject)
    with pytest.raises(ValueError, match="subject"):
        await transport.bus.subscribe(subject, Collector())


async def test_a_closed_subscription_is_silent(transport: AnyTransport, unique: str) -> None:
    """After `close()` no handler is called any more; closing twice is fine."""
    got = Collector()
    subscription = await transport.bus.subscribe(unique, got)
    await transport.bus.publish(unique, b"1")
    await got.wait(1)
    await transport.bus.publish(unique, b"2")
    await subscription.close()
    await subscription.close()
    await transport.bus.barrier()
    await transport.bus.barrier()
    assert got.bodies == [b"1"]


async def test_a_failing_handler_stops_no_delivery(transport: AnyTransport, unique: str) -> None:
    """An exception in a handler is logged; the next message comes as if nothing had happened."""
    got = Collector()

    def fragile(message: Message) -> None:
        if message.data == b"bad":
            raise RuntimeError("the handler's fault")
        got(message)

    await transport.bus.subscribe(unique, fragile)
    for body in (b"1", b"bad", b"2"):
        await transport.bus.publish(unique, body)
    await got.wait(2)
    assert got.bodies == [b"1", b"2"]


async def test_handlers_are_never_reentered(transport: AnyTransport, unique: str) -> None:
    """A handler that publishes to its own subject is called again later, not within itself."""
    depth = 0
    depths: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    done = asyncio.Event()

    def handler(message: Message) -> None:
        nonlocal depth
        depth += 1
        depths.append(depth)
        if len(depths) < 5:
            tasks.append(asyncio.ensure_future(transport.bus.publish(unique)))
        else:
            done.set()
        depth -= 1

    await transport.bus.subscribe(unique, handler)
    await transport.bus.publish(unique)
    async with asyncio.timeout(5):
        await done.wait()
    assert depths == [1] * 5
    await asyncio.gather(*tasks)


async def test_barrier_makes_a_subscription_effective(dial: Connect, unique: str) -> None:
    """After subscribe and barrier, a message of any publisher arrives. A hundred times."""
    sender, receiver = await dial(), await dial()
    for round_ in range(100):
        got = Collector()
        for number in range(20):  # something for the client's buffer to hold back
            await receiver.bus.publish(f"{unique}.noise", b"x" * 1000 * (number % 3))
        subscription = await receiver.bus.subscribe(f"{unique}.{round_}", got)
        await receiver.bus.barrier()
        await sender.bus.publish(f"{unique}.{round_}", b"first")
        await got.wait(1)
        await subscription.close()


async def test_barrier_survives_cancellation(transport: AnyTransport, unique: str) -> None:
    """A barrier that is cancelled, or runs out of time, does no harm to the connection."""
    for _ in range(20):
        task = asyncio.ensure_future(transport.bus.barrier())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    got = Collector()
    await transport.bus.subscribe(unique, got)
    await transport.bus.publish(unique, b"alive")
    await got.wait(1)
    await transport.bus.barrier()


async def test_a_megabyte_goes_through(dial: Connect, unique: str) -> None:
    """Fifty large messages published without a pause arrive whole."""
    sender, receiver = await dial(), await dial()
    got = Collector()
    await receiver.bus.subscribe(unique, got)
    await receiver.bus.barrier()
    size = 200_000
    for number in range(50):
        await sender.bus.publish(unique, bytes([number]) * size)
    await got.wait(50)
    assert got.bodies == [bytes([number]) * size for number in range(50)]

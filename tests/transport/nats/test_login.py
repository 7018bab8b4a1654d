"""The identity of a connection: tokens and seeds, their replacement, and their refusal."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from lorogo_protocol.access import tokens
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.limits import TOKEN_BYTES_MAX
from lorogo_protocol.messages import subjects
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.errors import NotAuthorized, RequestTimeout, TooLarge, Unreachable
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.login import NatsCredentials
from lorogo_transport.nats.wire import NatsOptions
from tests.transport.closed import ANN, BOB, SEED, nats_settings, standing_of
from tests.transport.support import Collector, StartNats, until


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: NatsCredentials("t", seed="s"), ValueError, "exclude each other"),
        (lambda: NatsCredentials(seed="s", documents=("a",)), ValueError, "with a token only"),
        (lambda: NatsCredentials("t", ("a.b",)), InvalidDocumentId, "a.b"),
        (lambda: NatsCredentials("t", ("*",)), InvalidDocumentId, "not allowed"),
        (lambda: NatsCredentials("t", ("a,b",)), InvalidDocumentId, "not allowed"),
        (
            lambda: NatsCredentials("t", tuple(f"d{n}" for n in range(33))),
            TooLarge,
            "33 documents, at most 32 are allowed",
        ),
        (
            lambda: NatsCredentials("t", tuple(f"document-{n:060}" for n in range(20))),
            TooLarge,
            "20 documents",
        ),
        (lambda: NatsCredentials(""), NotAuthorized, "empty"),
        (lambda: NatsCredentials("x" * (TOKEN_BYTES_MAX + 1)), NotAuthorized, "at most"),
    ],
)
def test_credentials_that_nats_cannot_carry(
    make: Callable[[], NatsCredentials], error: type[Exception], words: str
) -> None:
    """Invalid credentials are an error before anything is sent."""
    with pytest.raises(error, match=words):
        make()


def test_no_repr_shows_a_secret() -> None:
    """Neither token, seed nor a password in an address."""
    for login in (NatsCredentials("s3cret", ("d",)), NatsCredentials(seed="s3cret")):
        assert "s3cret" not in repr(NatsOptions(("nats://u:s3cret@h",), "name", 1.0, login))


async def test_a_token_source_that_fails_or_hangs() -> None:
    """A failing source is Unreachable in one sentence without the text of its exception; an empty token is
    refused.
    """

    async def fails() -> str:
        raise RuntimeError("s3cret")

    async def hangs() -> str:
        await asyncio.Event().wait()
        return "never"

    async def nothing() -> str:
        return ""

    with pytest.raises(Unreachable, match="RuntimeError") as caught:
        await NatsCredentials(fails).ask(5)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(Unreachable, match="within"):
        await NatsCredentials(hangs).ask(0.01)
    with pytest.raises(NotAuthorized, match="empty"):
        await NatsCredentials(nothing).ask(5)


async def test_a_token_source_that_was_cancelled_is_not_our_end() -> None:
    """It waited for a task that ended: Unreachable, and we try on. If we are cancelled ourselves, we end."""
    started = asyncio.Event()

    async def cancelled() -> str:
        raise asyncio.CancelledError

    async def hangs() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(Unreachable, match="was cancelled"):
        await NatsCredentials(cancelled).ask(5)
    asking = asyncio.create_task(NatsCredentials(hangs).ask(60))
    await started.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.nats
async def test_a_connection_survives_a_source_that_was_cancelled(fresh_nats: EmbeddedNats) -> None:
    """A reconnect whose token could not be had is tried again, for ever."""
    asked = 0

    async def source() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise asyncio.CancelledError
        return ANN.token

    async with await connect(fresh_nats.url, token=source) as transport:
        transport.renew()
        await until(lambda: asked >= 3 and transport.bus.connected)


@pytest.mark.nats
async def test_refused(start_nats: StartNats, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A wrong token or seed, or none, is NotAuthorized; no message, cause or log line shows it."""
    caplog.set_level(logging.DEBUG)
    url = await start_nats(nats_settings(tmp_path))
    wrong_seed = "SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
    for login in (
        {},
        {"token": "gu3ss"},
        {"token": "gu3ss", "documents": ("d1",)},
        {"token": ANN.token},
        {"token": ANN.token, "documents": ("d2",)},
        {"seed": "gu3ss"},
        {"seed": ""},
        {"seed": "SU" + "A" * 56},
        {"seed": wrong_seed},
    ):
        with pytest.raises(NotAuthorized) as caught:
            await connect(url, **login)
        shown = "".join(traceback.format_exception(caught.value, chain=True)) + caplog.text
        assert not [secret for secret in ("gu3ss", ANN.token, wrong_seed) if secret in shown]
    async with await connect(url, seed=SEED) as server:
        await server.bus.barrier()
    async with await connect(url, token=ANN.token, documents=("d1",)) as ann:
        await ann.bus.barrier()
        assert ann.bus.new_inbox().startswith(subjects.user_inbox(tokens.user_of(ANN.token)) + ".")


@pytest.mark.nats
async def test_a_token_is_asked_for_again(fresh_nats: EmbeddedNats) -> None:
    """Before each connection; with another user's token the inboxes move, and what listened there goes on."""
    given = [ANN.token]

    async def token() -> str:
        return given[-1]

    async with await connect(fresh_nats.url, token=token) as mover, await connect(fresh_nats.url) as other:
        got = Collector()
        listening = await mover.bus.subscribe(f"{mover.bus.new_inbox()}.*", got)
        before = listening.subject
        assert before.startswith(subjects.user_inbox(tokens.user_of(ANN.token)) + ".")
        await mover.bus.subscribe("silent", lambda message: None)
        waiting = asyncio.ensure_future(mover.bus.request("silent", timeout=60))
        await mover.bus.barrier()
        given.append(BOB.token)
        await fresh_nats.kill()
        with pytest.raises(RequestTimeout, match="connection was lost"):
            await waiting
        await fresh_nats.start()
        await until(lambda: mover.bus.connected and other.bus.connected)
        after = listening.subject
        assert after.startswith(subjects.user_inbox(tokens.user_of(BOB.token)) + ".")
        assert before.partition(".")[2] == after.partition(".")[2]
        await other.bus.publish(before.replace("*", "old"), b"old")
        await other.bus.publish(after.replace("*", "new"), b"new")
        await got.wait(1)
        assert got.bodies == [b"new"]
        await other.bus.subscribe("echo", lambda message: answer(message.reply))

        def answer(reply: str) -> None:
            asyncio.ensure_future(other.bus.publish(reply, b"answer"))  # noqa: RUF006  # awaited by the request

        await other.bus.barrier()
        assert (await mover.bus.request("echo", timeout=10)).data == b"answer"


async def test_the_twin_moves_inboxes_too() -> None:
    """In memory, a reconnect as another user does the same."""
    world = MemoryNats()
    mover, other = world.connect("mover", standing_of(ANN)), world.connect("other")
    got = Collector()
    listening = await mover.bus.subscribe(f"{mover.bus.new_inbox()}.*", got)
    await mover.bus.barrier()
    before = listening.subject
    mover.cut()
    mover.heal(standing_of(BOB))
    assert listening.subject.startswith(subjects.user_inbox(tokens.user_of(BOB.token)) + ".")
    await other.bus.publish(before.replace("*", "old"), b"old")
    await other.bus.publish(listening.subject.replace("*", "new"), b"new")
    await got.wait(1)
    assert got.bodies == [b"new"]


@pytest.mark.nats
async def test_why_there_is_no_connection(start_nats: StartNats, tmp_path: Path) -> None:
    """A reconnecting bus reports its refused token as the problem; once connected, it has no problem."""
    url = await start_nats(nats_settings(tmp_path))
    given = ["gu3ss"]

    async def token() -> str:
        return given[0]

    async with await connect(url, token=token, documents=("d1",), wait_seconds=5) as transport:
        assert isinstance(transport.bus.problem, NotAuthorized)
        given[0] = ANN.token
        await until(lambda: transport.bus.connected)
        assert transport.bus.problem is None

"""The owner's checks of tokens that the SDK and NATS accept, and the servers' work for their holders."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import lorogo_client
from lorogo_client import (
    Client,
    ClientSettings,
    DocumentFailed,
    NoSuchDocument,
    NotAllowed,
    NotAuthorized,
    State,
)
from lorogo_client.awaitables import AwaitableContext
from lorogo_protocol.status import Failed
from lorogo_server import Server, ServerSettings
from lorogo_transport.stores.statuses import Statuses
from tests.security.closed import Closed, closed_nats, mint

pytestmark = pytest.mark.nats

SETTINGS = ClientSettings(open_seconds=20.0, reply_seconds=3.0, retry_seconds_max=0.5)
SECONDS = 30.0


def _client(closed: Closed, token: str) -> AwaitableContext[Client]:
    return lorogo_client.connect(closed.url, token=token, settings=SETTINGS)


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    async with (
        closed_nats(tmp_path) as made,
        Server(made.server, ServerSettings(), data=tmp_path / "server", authority=made.authority),
    ):
        yield made


async def test_a_grant_that_says_too_much_is_denied_by_nats_and_by_the_owner(closed: Closed) -> None:
    """A client that skips its own token check gets the same error, from NATS or from the owner."""
    async with _client(closed, mint({"plan": "read"})) as ann:
        ann.pool.token_provider._access["plan"] = ann.pool.token_provider._access["secret"] = 3  # type: ignore[assignment]
        with pytest.raises(NotAllowed):
            await ann.document("plan").patch([{"op": "add", "path": "/t", "value": "no"}], timeout=SECONDS)
        with pytest.raises(NotAuthorized):  # a connection that names it is not made
            await ann.open("secret")
    async with _client(closed, mint({"*": "admin"}, subject="root")) as root:
        with pytest.raises(NotAllowed, match="the token grants read on 'plan', and patch needs write"):
            await root.document("plan", token=mint({"plan": "read"})).patch([], timeout=SECONDS)
        with pytest.raises(NotAllowed):
            await root.document("plan", token=mint({"other": "admin"})).get(timeout=SECONDS)
        assert (await root.document("plan").get())["value"] == {}


async def test_an_admin_resets_a_document_through_a_server(closed: Closed) -> None:
    """An ERROR document is an error at once, and the reset returns whether it was one; neither needs a
    bucket.
    """
    statuses = Statuses(closed.server)
    await statuses.write("broken", Failed("trace-1", 1), expected_revision=0)
    async with _client(closed, mint({"broken": "admin"})) as ann:
        with pytest.raises(DocumentFailed, match="trace-1") as failed:
            await ann.open("broken")
        assert failed.value.trace_id == "trace-1"
        assert await ann.reset("broken") is True
        assert await ann.reset("broken") is False
        async with ann.open("broken") as session:
            assert session.state is State.SAVED


async def test_an_operator_calls_with_a_seed_and_a_token(closed: Closed) -> None:
    """The connection is the operator's, the calls are the token's; without one only facts are to be had."""
    async with lorogo_client.connect(
        closed.url, seed=closed.seeds["operator"], token=mint({"*": "admin"}), settings=SETTINGS
    ) as root:
        await root.document("plan").patch([{"op": "add", "path": "/t", "value": "hi"}])
        assert [document async for document, _ in root.statuses()] == ["plan"]
    async with lorogo_client.connect(
        closed.url, seed=closed.seeds["operator"], settings=SETTINGS
    ) as tokenless:
        assert (await tokenless.document("plan").version())["sequence"] == 1
        for call in (tokenless.document("plan").get(), tokenless.document("plan").patch([])):
            with pytest.raises(NotAllowed, match=r"a token that grants (read|write) on 'plan' is missing"):
                await call


async def test_a_reader_creates_an_empty_document_by_opening_it(closed: Closed) -> None:
    """NATS and the owner allow that, as docs/SECURITY.md states; calls of a reader create none."""
    async with _client(closed, mint({"minutes-*": "read"})) as ann:
        with pytest.raises(NoSuchDocument):
            await ann.document("minutes-1").get(timeout=SECONDS)
        async with ann.open("minutes-1") as session:
            assert session.doc.get_deep_value() == {}
        assert (await ann.document("minutes-1").get(timeout=SECONDS))["value"] == {}

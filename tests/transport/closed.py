"""A small closed NATS, real or in memory: a server, and two users with the rights of their tokens."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import nkeys

from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import Access, Subjects, subjects_of
from lorogo_protocol.messages import subjects
from lorogo_testing.broker import ConnectionIdentity
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.nats.connection import connect
from lorogo_transport.rpc.reply_rule import ReplyRule
from tests.transport.support import AnyTransport, nats_with

SEED = nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER).decode()


@dataclass(frozen=True)
class User:
    """A user with a token."""

    token: str
    documents: Mapping[str, Access]

    @property
    def may(self) -> Subjects:
        return subjects_of(tokens.user_of(self.token), self.documents.items())


ANN = User("the-token-of-ann", {"d1": Access.WRITE})
BOB = User("the-token-of-bob", {"d1": Access.READ, "d2": Access.READ})


@dataclass(frozen=True)
class Closed:
    """Makes connections; closed with the test."""

    server: Callable[[], Awaitable[AnyTransport]]
    user: Callable[[User], Awaitable[AnyTransport]]


def nats_settings(folder: Path, users: Mapping[str, User] | None = None) -> dict[str, object]:
    """Of a nats-server that knows the server's nkey, and our users by their documents and tokens."""
    listed: list[dict[str, object]] = [{"nkey": nkeys.from_seed(SEED.encode()).public_key.decode()}]
    for one in (users or {"ann": ANN, "bob": BOB}).values():
        may = {"publish": list(one.may.publish), "subscribe": list(one.may.subscribe)}
        listed.append({"user": ",".join(one.documents), "password": one.token, "permissions": may})
    return {"jetstream": {"store_dir": str(folder / "js")}, "authorization": {"users": listed}}


@asynccontextmanager
async def closed_nats(folder: Path) -> AsyncIterator[Closed]:
    """On the real thing."""
    async with nats_with(folder, nats_settings(folder)) as url, AsyncExitStack() as stack:

        async def server() -> AnyTransport:
            made = await connect(
                url,
                name="server",
                seed=SEED,
                answer_users_only=True,
                inbox_prefix=subjects.SERVER_INBOX,
                taken_prefix=subjects.TAKEN,
            )
            return await stack.enter_async_context(made)

        async def user(one: User) -> AnyTransport:
            made = await connect(url, name="user", token=one.token, documents=tuple(one.documents))
            return await stack.enter_async_context(made)

        yield Closed(server, user)


@asynccontextmanager
async def closed_memory(world: MemoryNats) -> AsyncIterator[Closed]:
    """In memory."""
    async with AsyncExitStack() as stack:

        async def server() -> AnyTransport:
            standing = ConnectionIdentity(subjects.SERVER_INBOX, subjects.TAKEN, ReplyRule(users_only=True))
            return await stack.enter_async_context(world.connect("server", standing))

        async def user(one: User) -> AnyTransport:
            return await stack.enter_async_context(world.connect("user", standing_of(one)))

        yield Closed(server, user)


def standing_of(user: User) -> ConnectionIdentity:
    """The identity of a user for the broker in memory."""
    return ConnectionIdentity(subjects.user_inbox(tokens.user_of(user.token)), permissions=user.may)

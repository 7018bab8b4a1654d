"""A closed server in memory, and people with tokens of all kinds."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import nanoid

from lorogo_protocol.access import tokens
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server import Server, ServerSettings
from lorogo_testing.broker import ConnectionIdentity
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from lorogo_transport.ports import Transport
from lorogo_transport.rpc.calls import Caller
from lorogo_transport.rpc.reply_rule import ReplyRule
from tests.server.support import WAIT, Probe

_JWK = '{"kty": "oct", "kid": "k1", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"}'
KEY = tokens.key_of(_JWK)
QUIET = ServerSettings(durability="stream")


def mint(documents: Mapping[str, str], *, token_id: str = "", seconds: float = 600.0) -> str:
    """A token; with negative seconds one that ended so long ago."""
    now = time.time()
    return tokens.mint(
        KEY,
        subject="ann",
        documents=documents,
        expires=now + seconds,
        now=now + min(0, 2 * seconds),
        token_id=token_id or str(nanoid.generate(size=16)),
    )


@dataclass(frozen=True)
class ClosedWorld:
    """One server with keys. Connections here have all rights: what is tested is the owner."""

    world: MemoryNats
    server: Server
    authority: Authority
    probe: Probe  # whose inbox is a user's

    async def asked(
        self,
        verb: str,
        document_id: str,
        token: str = "",
        body: Mapping[str, object] | None = None,
        *,
        through: Transport | None = None,
    ) -> Reason | dict[str, object]:
        """The answer, or the reason of the refusal."""
        transport = through or self.probe.transport
        caller = Caller(transport.bus, SystemClock(), nanoid.generate)
        await caller.start()
        try:
            return await caller.call(verb, document_id, body, timeout=WAIT, token=token)
        except Refused as no:
            return no.reason if not token or token not in str(no) else {"leaked": token}
        finally:
            await caller.close()


def standing(inbox: str = "_INBOX_probe0") -> ConnectionIdentity:
    return ConnectionIdentity(inbox)


@asynccontextmanager
async def closed_world(
    settings: ServerSettings = QUIET,
    *,
    data: Path | None = None,
    world: MemoryNats | None = None,
    authority_of: Callable[[Transport], Authority] | None = None,
) -> AsyncIterator[ClosedWorld]:
    """Started; documents are begun with `probe.start`."""
    world = world or MemoryNats()
    mine = ConnectionIdentity(subjects.SERVER_INBOX, subjects.TAKEN, ReplyRule(users_only=True))
    transport = world.connect("server", mine)
    make = authority_of or (lambda one: Authority(KeySource.from_text(_JWK), one, SystemClock()))
    authority = make(transport)
    async with (
        transport,
        Server(
            transport, replace(settings, revocations_wait_seconds=0.0), data=data, authority=authority
        ) as server,
        authority,
        Probe(world.connect("probe", standing())) as probe,
    ):
        yield ClosedWorld(world, server, authority, probe)

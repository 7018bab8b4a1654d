"""A closed NATS for tests: the real nats-server, the real auth service, and tokens of all kinds."""

import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lorogo_protocol.access import tokens
from lorogo_protocol.messages import subjects
from lorogo_transport.auth import accounts
from lorogo_transport.auth.auth_service import running
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.callout import Callout
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats.connection import JetStreamTransport, connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.stores import topology
from tests.security.raw import Raw
from tests.transport.support import make_list

KEY = tokens.key_of({"kty": "oct", "kid": "k1", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA"})
OTHER_KEY = tokens.key_of({"kty": "oct", "kid": "k1", "k": "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI"})
_ids = itertools.count(1)


def mint(
    documents: Mapping[str, str], *, key: tokens.Key = KEY, seconds: float = 7200, subject: str = "ann"
) -> str:
    """A token; with negative seconds one that ended so long ago."""
    now = time.time() + min(0, 2 * seconds)
    return tokens.mint(
        key,
        subject=subject,
        documents=documents,
        expires=time.time() + seconds,
        now=now,
        token_id=f"t{next(_ids)}-{secrets.token_hex(4)}",
    )


@dataclass(frozen=True)
class Closed:
    """The parts of a closed NATS that a test uses."""

    nats: EmbeddedNats
    seeds: Mapping[str, str]
    keys: Path
    server: JetStreamTransport  # with everything that a document server may do
    authority: Authority  # on the server's connection
    callout: Callout

    @property
    def url(self) -> str:
        return self.nats.url

    async def raw(self, token: str, *documents: str) -> Raw:
        """A plain connection with this token."""
        if documents:
            return await Raw.open(self.url, user=",".join(documents), **{"pass": token})
        return await Raw.open(self.url, auth_token=token)

    async def service(self, name: str) -> JetStreamTransport:
        """A service's connection."""
        return await connect(self.url, name=name, seed=self.seeds[name], inbox_prefix="_INBOX_test")


@asynccontextmanager
async def closed_nats(folder: Path) -> AsyncIterator[Closed]:
    """All of it, with the streams that a document server makes."""
    seeds = accounts.new_seeds(secrets.token_bytes)
    keys = folder / "keys.jwks"
    write_keys(keys, KEY)
    conf = accounts.accounts(accounts.public_keys(seeds))
    async with (
        EmbeddedNats(folder / "nats", configuration=conf) as nats,
        await connect(
            nats.url,
            name="server",
            seed=seeds[accounts.SERVER],
            answer_users_only=True,
            inbox_prefix=subjects.SERVER_INBOX,
            taken_prefix=subjects.TAKEN,
        ) as server,
    ):
        for spec in topology.specs(guarded=True):
            await server.ensure(spec)
        await make_list(server)
        source = KeySource.from_file(keys)
        async with (
            Authority(KeySource.from_file(keys), server, SystemClock()) as authority,
            running(nats.url, source, seeds) as callout,
        ):
            yield Closed(nats, seeds, keys, server, authority, callout)


def write_keys(path: Path, *keys: tokens.Key) -> None:
    path.touch(0o600)
    path.write_text(json.dumps({"keys": [key.private() for key in keys]}))

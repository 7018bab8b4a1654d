"""A `Transport` on real NATS: `await connect("nats://127.0.0.1:4222", name="...")`."""

import asyncio
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from lorogo_transport.nats import streams
from lorogo_transport.nats import tls as nats_tls
from lorogo_transport.nats.addresses import parse_servers
from lorogo_transport.nats.bus import JetStreamBus
from lorogo_transport.nats.login import NatsCredentials, TokenSource
from lorogo_transport.nats.wire import RECONNECT_SECONDS_MAX, NatsOptions
from lorogo_transport.ports import ServiceInfo, StreamSpec, Subscription
from lorogo_transport.rpc import services
from lorogo_transport.rpc.reply_rule import ReplyRule


async def connect(
    url: str,
    *,
    name: str = "lorogo",
    timeout: float = 5.0,
    token: TokenSource | None = None,
    documents: Sequence[str] = (),
    seed: str | None = None,
    inbox_prefix: str = "_INBOX",
    taken_prefix: str = "",
    answer_users_only: bool = False,
    answer_nats_only: bool = False,
    rng: random.Random | None = None,
    wait_seconds: float | None = None,
    reconnect_seconds_max: float = RECONNECT_SECONDS_MAX,
) -> "JetStreamTransport":
    """Return a connected transport, which reconnects without limit.

    With `wait_seconds` it returns after that time even if NATS has not answered, and keeps trying.

    `url` is one address or several with commas between, each `nats://[user:password@]host[:port]`
    or `tls://...`; after a `?` it may name files for TLS (`tls`). Raises Unreachable
    with the reason if none answers in time; NotAuthorized if NATS refuses the credentials.

    The credentials are a `token` (or a function that is called before each connection), for the
    `documents` named or for those that the token names; or the `seed` of an nkey. With a token the
    inboxes are those of its user, else they start with `inbox_prefix`.
    A server with keys receives window confirmations below `taken_prefix`, and with `answer_users_only`
    answers only to inboxes of users (docs/decisions/0016). The auth service sets `answer_nats_only`.
    """
    url, files = nats_tls.split(url)
    options = NatsOptions(
        parse_servers(url),
        name,
        timeout,
        NatsCredentials(token, tuple(documents), seed),
        await asyncio.to_thread(nats_tls.context_of, files) if files else None,
        inbox_prefix,
        taken_prefix,
        ReplyRule(users_only=answer_users_only, nats_only=answer_nats_only),
        rng if rng is not None else random.Random(),
        reconnect_seconds_max,
    )
    bus = JetStreamBus(options)
    await bus.open(wait_seconds)
    return JetStreamTransport(bus)


class JetStreamTransport:
    """A `ports.Transport`: the bus, and JetStream streams over it."""

    def __init__(self, bus: JetStreamBus) -> None:
        self._bus = bus

    @property
    def bus(self) -> JetStreamBus:
        return self._bus

    def stream(self, name: str) -> streams.JetStreamStream:
        return streams.JetStreamStream(self._bus, name)

    async def ensure(self, spec: StreamSpec) -> list[str]:
        return await streams.ensure(self._bus, spec)

    async def announce(self, info: ServiceInfo, stats: Callable[[], Mapping[str, object]]) -> Subscription:
        return await services.announce(
            self._bus, info, stats, service_id=secrets.token_hex(11), started=datetime.now(UTC)
        )

    def renew(self) -> None:
        """Reconnect, because the token function returns another token."""
        self._bus.renew()

    async def close(self) -> None:
        await self._bus.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

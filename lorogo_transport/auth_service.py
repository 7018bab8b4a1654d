"""The auth service, whole: asked in AUTH, reading what is revoked in LOROGO, closing connections in SYS."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from lorogo_transport import closed, seeds
from lorogo_transport.authority import Authority
from lorogo_transport.callout import Callout
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.jetstream import connect
from lorogo_transport.key_source import KeySource
from lorogo_transport.kicking import Kicker

#: the seeds that it needs
NEEDED: Final = (closed.ISSUER, closed.AUTH, closed.AUTH_LIST, closed.SYSTEM)

RECONNECT_SECONDS_MAX: Final = 0.2  # while it is away nobody comes in


@asynccontextmanager
async def running(
    url: str, keys: KeySource, found: Mapping[str, str], *, clock: Clock | None = None
) -> AsyncIterator[Callout]:
    """The service on this NATS, until the end of the block. `found` has the seeds by their names.

    Raises Unreachable, NotAuthorized, InvalidSeed.
    """
    signer = seeds.SeedSigner(found[closed.ISSUER], seeds.ACCOUNT, "the issuer's seed")
    clock = clock if clock is not None else SystemClock()
    async with AsyncExitStack() as stack:
        asked, listed, system = [
            await stack.enter_async_context(
                await connect(
                    url,
                    name=f"lorogo {name}",
                    seed=found[name],
                    inbox_prefix=closed.AUTH_INBOX,
                    answer_nats_only=name == closed.AUTH,
                    reconnect_seconds_max=RECONNECT_SECONDS_MAX,
                )
            )
            for name in (closed.AUTH, closed.AUTH_LIST, closed.SYSTEM)
        ]
        authority = await stack.enter_async_context(Authority(keys, listed, clock))
        await stack.enter_async_context(Kicker(system.bus, authority))
        callout = await stack.enter_async_context(Callout(asked.bus, authority, signer, clock))
        await asked.bus.barrier()
        yield callout

"""The auth service: answers the callout in AUTH, reads revocations in LOROGO, closes connections in SYS."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

from lorogo_protocol.access.callout import SUBJECT
from lorogo_protocol.messages import subjects
from lorogo_transport.auth import accounts, seeds
from lorogo_transport.auth.anonymous_access import accepts_token
from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.callout import Callout
from lorogo_transport.auth.connection_reaper import FIND, ConnectionReaper
from lorogo_transport.auth.key_source import KeySource
from lorogo_transport.clock import Clock, SystemClock
from lorogo_transport.errors import NotAuthorized, Unreachable
from lorogo_transport.nats.connection import connect
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

#: the seeds that the service needs
NEEDED: Final = (accounts.ISSUER, accounts.AUTH, accounts.AUTH_LIST, accounts.SYSTEM)

#: its connections, and a subject that only this connection may use
_PLACES: Final = {accounts.AUTH: SUBJECT, accounts.AUTH_LIST: subjects.REVOKED_ALL, accounts.SYSTEM: FIND}
_PROOF_SECONDS: Final = 15.0
RECONNECT_SECONDS_MAX: Final = 0.2  # without the service no client can connect


class WrongSeed(NotAuthorized):
    """NATS has this seed's key for another user."""

    code = "wrong-seed"


@asynccontextmanager
async def running(
    url: str, keys: KeySource, found: Mapping[str, str], *, clock: Clock | None = None
) -> AsyncIterator[Callout]:
    """Run the service on this NATS until the end of the block. `found` has the seeds by name.

    Raises Unreachable, NotAuthorized, WrongSeed, InvalidSeed.
    """
    signer = seeds.SeedSigner(found[accounts.ISSUER], seeds.ACCOUNT, "the issuer's seed")
    clock = clock if clock is not None else SystemClock()
    async with AsyncExitStack() as stack:
        asked, listed, system = places = [
            await stack.enter_async_context(
                await connect(
                    url,
                    name=f"lorogo {name}",
                    seed=found[name],
                    inbox_prefix=accounts.AUTH_INBOX,
                    answer_nats_only=name == accounts.AUTH,
                    reconnect_seconds_max=RECONNECT_SECONDS_MAX,
                )
            )
            for name in _PLACES
        ]
        refused: set[str] = set()
        for one in places:
            stack.callback(one.bus.watch_refusals(lambda refusal: refused.add(refusal.subject)))
        authority = await stack.enter_async_context(Authority(keys, listed, clock))
        await stack.enter_async_context(ConnectionReaper(system.bus, authority))
        callout = await stack.enter_async_context(Callout(asked.bus, authority, signer, clock))
        await system.bus.publish(FIND)
        for one in places:
            await one.bus.barrier()  # permission violations arrive before the barrier returns
        if wrong := [f"{name}.seed" for name, subject in _PLACES.items() if subject in refused]:
            raise WrongSeed(
                f"NATS has the key of {' and '.join(wrong)} for another user: are the seeds mixed up?"
            )
        yield callout


async def check_issuer(url: str, service: Callout) -> None:
    """Raise WrongSeed if NATS rejects answers signed with the issuer's seed: then no client could connect."""
    answers_accepted = None
    with suppress(TimeoutError, Unreachable):
        async with asyncio.timeout(_PROOF_SECONDS):
            answers_accepted = await service.answers_accepted(lambda token: accepts_token(url, token))
    if answers_accepted is None:
        log.warning("cannot verify that NATS accepts the answers; try to connect with a token")
    elif not answers_accepted:
        raise WrongSeed(
            "NATS rejects answers signed with issuer.seed, so no client could connect: issuer.seed must"
            " match the `issuer` in the nats.conf that NATS runs with"
        )

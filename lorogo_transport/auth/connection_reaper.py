"""Closing of NATS connections whose token is no longer valid, through NATS's system account.

After a revocation or the removal of a key, the reaper queries every nats-server for the connections of the
account LOROGO. The name of a token's user contains everything that `Authority.is_valid` needs, so it does not
matter which instance admitted it, and when. A client may connect during a check, so the reaper checks again a
little later; and periodically in any case.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from lorogo_protocol.access import callout
from lorogo_protocol.access.tokens import Token
from lorogo_transport.auth.accounts import ANSWER_SECONDS
from lorogo_transport.auth.authority import Authority
from lorogo_transport.errors import RequestTimeout, TransportError
from lorogo_transport.ports import Bus, Message
from lorogo_transport.tasks import cancel, within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

FIND: Final = "$SYS.REQ.SERVER.PING.CONNZ"  # every nats-server answers
PAGE: Final = 256  # connections per answer, at most a kilobyte each
QUIET_SECONDS: Final = 0.5  # without an answer, until the query ends
RECHECK_SECONDS: Final = ANSWER_SECONDS + 1.0  # by then pending connections are admitted
CHECK_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
_ANSWERS_MAX: Final = 1_000  # nats-servers


class ConnectionReaper:
    """Closes connections whose tokens are no longer valid. `async with`."""

    def __init__(self, bus: Bus, authority: Authority) -> None:
        """`bus` is in NATS's system account."""
        self._bus = bus
        self._authority = authority
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unwatch: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        self._unwatch = [
            self._authority.watch(self._wake.set),
            self._bus.watch_connection(lambda connected: self._wake.set() if connected else None),
        ]
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="connection-reaper")
        return self

    async def __aexit__(self, *_: object) -> None:
        for stop in self._unwatch:
            stop()
        await cancel(self._task)

    async def check(self) -> int:
        """Check every connection now; return the number closed. Raises TransportError."""
        if not self._authority.known:
            return 0  # revocations unknown: no new client is admitted, connections stay
        answers: asyncio.Queue[Message] = asyncio.Queue(_ANSWERS_MAX)

        def on_answer(message: Message) -> None:
            with suppress(asyncio.QueueFull):
                answers.put_nowait(message)

        inbox = self._bus.new_inbox()
        subscription = await self._bus.subscribe(inbox, on_answer)
        checks: list[asyncio.Task[int]] = []  # one per nats-server, concurrently
        try:
            await self._bus.publish(FIND, _query(0), reply=inbox)
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(QUIET_SECONDS):
                        answer = await answers.get()
                    checks.append(
                        asyncio.create_task(self._on_answer(answer), name="connection-reaper-server")
                    )
            outcomes = await asyncio.gather(*checks, return_exceptions=True)
        finally:
            for check in checks:
                check.cancel()
            await subscription.close()
        if not outcomes:
            raise RequestTimeout("no nats-server answered the query for connections")
        return _sum(outcomes)

    async def _run(self) -> None:
        seconds, failed = CHECK_SECONDS, ""
        while True:
            woken = await within(seconds, self._wake.wait())
            seconds = RECHECK_SECONDS if woken or failed else CHECK_SECONDS
            self._wake.clear()
            try:
                await self.check()
                failed = ""
            except TransportError as error:
                if str(error) != failed:  # log a repeated error once
                    log.warning("cannot check connections for revoked tokens", problem=str(error))
                seconds, failed = RETRY_SECONDS, str(error)
            except Exception:  # the next check may succeed
                log.exception("cannot check connections for revoked tokens")
                seconds = CHECK_SECONDS

    async def _on_answer(self, message: Message) -> int:
        """Check one nats-server's connections, page by page; return the number closed."""
        server_id, connections = _connections(message.data)
        ended = _ended(connections, self._authority)
        offset, problem = 0, None
        while len(connections) >= PAGE and problem is None:
            offset += PAGE
            try:
                more = await self._bus.request(
                    f"$SYS.REQ.SERVER.{server_id}.CONNZ", _query(offset), timeout=REQUEST_SECONDS
                )
                _, connections = _connections(more.data)
                ended += _ended(connections, self._authority)
            except TransportError as error:  # close the connections found so far
                problem = error
        for connection_id, token, address in ended:
            await self._bus.request(
                f"$SYS.REQ.SERVER.{server_id}.KICK",
                json.dumps({"cid": connection_id}).encode(),
                timeout=REQUEST_SECONDS,
            )
            log.info(
                "NATS connection closed: token no longer valid",
                subject=token.subject,
                token_id=token.token_id,
                address=address,
            )
        if problem is not None:
            raise problem
        return len(ended)


def _sum(outcomes: list[int | BaseException]) -> int:
    """Sum the closed connections of all nats-servers. Raises the first error."""
    wrong = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in wrong:
        if not isinstance(error, TransportError):
            raise error
    if wrong:
        raise TransportError(f"{len(wrong)} of {len(outcomes)} nats-servers: {wrong[0]}")
    return sum(outcome for outcome in outcomes if isinstance(outcome, int))


def _query(offset: int) -> bytes:
    return json.dumps({"auth": True, "acc": callout.ACCOUNT, "limit": PAGE, "offset": offset}).encode()


def _connections(data: bytes) -> tuple[str, list[dict[str, Any]]]:
    try:
        answer = json.loads(data)
        return str(answer["server"]["id"]), list(answer["data"]["connections"] or [])
    except (ValueError, KeyError, TypeError):
        raise TransportError("malformed list of connections") from None


def _ended(connections: list[dict[str, Any]], authority: Authority) -> list[tuple[int, Token, str]]:
    """Return the connections whose token is no longer valid: id, token and address."""
    found = []
    for connection in connections:
        token = callout.token_named(str(connection.get("authorized_user", "")))
        if token is not None and not authority.is_valid(token):
            found.append((int(connection["cid"]), token, str(connection.get("ip", ""))))
    return found

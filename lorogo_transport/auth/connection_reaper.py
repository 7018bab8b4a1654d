"""Connections to NATS whose token is good no more: found and closed, through NATS's system account.

When something was revoked or a key removed, every nats-server is asked for the connections of the account
LOROGO. The name of a token's user says all that `Authority.still` wants to know, so it does not matter who
let it in, and when. As one may be coming in while we look, we look again a little later; and now and then in
any case.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self

from lorogo_protocol import callout
from lorogo_protocol.tokens import Token
from lorogo_transport.auth.accounts import ANSWER_SECONDS
from lorogo_transport.auth.authority import Authority
from lorogo_transport.errors import RequestTimeout, TransportError
from lorogo_transport.ports import Bus, Message
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

FIND: Final = "$SYS.REQ.SERVER.PING.CONNZ"  # every nats-server answers
PAGE: Final = 256  # connections in one answer, a kilobyte each at most
QUIET_SECONDS: Final = 0.5  # after which no more nats-servers are expected to answer
AGAIN_SECONDS: Final = ANSWER_SECONDS + 1.0  # when whoever was coming in is in
LOOK_SECONDS: Final = 60.0
REQUEST_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
_ANSWERS_MAX: Final = 1_000  # nats-servers


class ConnectionReaper:
    """Closes connections whose tokens are good no more. `async with`."""

    def __init__(
        self,
        bus: Bus,
        authority: Authority,
        *,
        again_seconds: float = AGAIN_SECONDS,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`bus` is in NATS's system account."""
        self._bus = bus
        self._authority = authority
        self._again_seconds = again_seconds
        self._look_seconds = look_seconds
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unwatch: list[Callable[[], None]] = []
        self.kicked = 0

    async def __aenter__(self) -> Self:
        self._unwatch = [
            self._authority.watch(self._wake.set),
            self._bus.watch_connection(lambda connected: self._wake.set() if connected else None),
        ]
        self._wake.set()
        self._task = asyncio.create_task(self._keep(), name="kicker")
        return self

    async def __aexit__(self, *_: object) -> None:
        for stop in self._unwatch:
            stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def look(self) -> int:
        """Look at every connection now; says how many were closed. Raises TransportError."""
        if not self._authority.known:
            return 0  # what is revoked is not known: nobody new comes in, and who is in stays
        answers: asyncio.Queue[Message] = asyncio.Queue(_ANSWERS_MAX)

        def heard(message: Message) -> None:
            with suppress(asyncio.QueueFull):
                answers.put_nowait(message)

        inbox = self._bus.new_inbox()
        subscription = await self._bus.subscribe(inbox, heard)
        looks: list[asyncio.Task[int]] = []  # one for each nats-server: none waits for another
        try:
            await self._bus.publish(FIND, _question(0), reply=inbox)
            with suppress(TimeoutError):
                while True:
                    async with asyncio.timeout(QUIET_SECONDS):
                        answer = await answers.get()
                    looks.append(asyncio.create_task(self._on_answer(answer), name="kicker of a nats-server"))
            outcomes = await asyncio.gather(*looks, return_exceptions=True)
        finally:
            for look in looks:
                look.cancel()
            await subscription.close()
        if not outcomes:
            raise RequestTimeout("no nats-server says who is connected")
        return _sum(outcomes)

    async def _keep(self) -> None:
        seconds, failed = self._look_seconds, ""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            seconds = self._again_seconds if self._wake.is_set() or failed else self._look_seconds
            self._wake.clear()
            try:
                await self.look()
                failed = ""
            except TransportError as error:
                if str(error) != failed:  # once, not every second
                    log.warning("connections of revoked tokens could not be looked for", problem=str(error))
                seconds, failed = RETRY_SECONDS, str(error)
            except Exception:  # whatever it is, the next look may succeed
                log.exception("connections of revoked tokens could not be looked for")
                seconds = self._look_seconds

    async def _on_answer(self, message: Message) -> int:
        """One nats-server's connections, page by page, and those closed that must be."""
        server_id, connections = _connections(message.data)
        ended = _ended(connections, self._authority)
        offset, problem = 0, None
        while len(connections) >= PAGE and problem is None:
            offset += PAGE
            try:
                more = await self._bus.request(
                    f"$SYS.REQ.SERVER.{server_id}.CONNZ", _question(offset), timeout=REQUEST_SECONDS
                )
                _, connections = _connections(more.data)
                ended += _ended(connections, self._authority)
            except TransportError as error:  # what was found is closed all the same
                problem = error
        for connection_id, token, address in ended:
            await self._bus.request(
                f"$SYS.REQ.SERVER.{server_id}.KICK",
                json.dumps({"cid": connection_id}).encode(),
                timeout=REQUEST_SECONDS,
            )
            self.kicked += 1
            log.info(
                "a connection was closed: its token is good no more",
                subject=token.subject,
                token_id=token.token_id,
                address=address,
            )
        if problem is not None:
            raise problem
        return len(ended)


def _sum(outcomes: list[int | BaseException]) -> int:
    """How many were closed on all nats-servers. Raises what went wrong on any of them."""
    wrong = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in wrong:
        if not isinstance(error, TransportError):
            raise error
    if wrong:
        raise TransportError(f"{len(wrong)} of {len(outcomes)} nats-servers: {wrong[0]}")
    return sum(outcome for outcome in outcomes if isinstance(outcome, int))


def _question(offset: int) -> bytes:
    return json.dumps({"auth": True, "acc": callout.ACCOUNT, "limit": PAGE, "offset": offset}).encode()


def _connections(data: bytes) -> tuple[str, list[dict[str, Any]]]:
    try:
        answer = json.loads(data)
        return str(answer["server"]["id"]), list(answer["data"]["connections"] or [])
    except (ValueError, KeyError, TypeError):
        raise TransportError("a list of connections that cannot be read") from None


def _ended(connections: list[dict[str, Any]], authority: Authority) -> list[tuple[int, Token, str]]:
    """The connections whose token is good no more: their ids, tokens and addresses."""
    found = []
    for connection in connections:
        token = callout.token_named(str(connection.get("authorized_user", "")))
        if token is not None and not authority.still(token):
            found.append((int(connection["cid"]), token, str(connection.get("ip", ""))))
    return found

"""Document endpoint: handles RPC calls, pings and presence messages of one open document.

Some of their data is kept for a while and then swept: presence, chunks of incomplete calls, and the export
that concurrent syncs share.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping

from lorogo_protocol.access.tokens import Token
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.limits import AWARENESS_BYTES_MAX
from lorogo_protocol.loro.present import BoundedPresenceStore
from lorogo_protocol.messages import subjects
from lorogo_server.context import ServerContext
from lorogo_server.document.document_state import DocumentState
from lorogo_server.ownership.lease import Lease
from lorogo_server.rpc.rights import audited, recorded
from lorogo_transport.ports import Message
from lorogo_transport.rpc.calls import CallRequest, Responder, Served
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import StructuredLogger

_SWEEP_SECONDS = 5.0
_REST_SECONDS = 20.0  # if there is nothing to sweep
_PONGS_MAX = 1024  # being sent at once
_PRESENCE_BYTES_MAX = 4 * 1024 * 1024  # of presence between two sweeps

Call = Callable[[str, dict[str, object]], Awaitable[Mapping[str, object]]]  # (verb, arguments) -> reply


class DocumentEndpoint:
    """The endpoint of one document."""

    __slots__ = (
        "_call",
        "_context",
        "_document_id",
        "_exported",
        "_lease",
        "_log",
        "_next_sweep",
        "_pongs",
        "_presence_bytes",
        "_responder",
        "_spawn",
        "_state",
        "_touch",
        "_wake",
        "presence",
    )

    def __init__(
        self,
        document_id: str,
        context: ServerContext,
        lease: Lease,
        state: DocumentState,
        *,
        log: StructuredLogger,
        call: Call,
        spawn: Callable[[Work], None],
        touch: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        """`call` executes an RPC call. `wake` is called when there is new data to sweep."""
        self.presence = BoundedPresenceStore(context.settings.presence_seconds)
        self._document_id = document_id
        self._context = context
        self._lease = lease
        self._log = log
        self._call = call
        self._spawn = spawn
        self._state = state
        self._touch = touch
        self._wake = wake
        self._next_sweep = 0.0
        self._presence_bytes = 0  # received since the last sweep
        self._pongs = 0
        self._exported: tuple[bytes, bytes] | None = None  # (version vector, snapshot), until the next sweep
        self._responder: Responder | None = None

    async def listen(self, listen: Callable[[str, Callable[[Message], None]], Awaitable[None]]) -> None:
        """Subscribe to calls, pings and presence."""
        context = self._context
        self._responder = Responder(
            context.transport.bus,
            context.clock,
            self._admit,
            spawn=self._spawn,
            budget=context.reply_budget,
            on_refused=context.counters.refused_call,
            room=context.unfinished,
        )
        await listen(subjects.ping(self._document_id), self._on_ping)
        await listen(subjects.calls(self._document_id), self._on_call)
        await listen(subjects.awareness(self._document_id), self._on_awareness)

    def close(self) -> None:
        """Stop handling messages."""
        self._responder = None  # breaks a reference cycle, so that a closed document is freed at once

    # --- data kept between messages ---------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of incomplete calls."""
        return 0 if self._responder is None else self._responder.unfinished_bytes

    def exported(self, vector: bytes) -> bytes | None:
        """Return the shared export if it has that version."""
        return self._exported[1] if self._exported is not None and self._exported[0] == vector else None

    def keep_exported(self, vector: bytes, data: bytes) -> None:
        """Share this export for a while."""
        self._exported = (vector, data)
        # The next sweep drops the export; keep it for a full interval even if the last sweep was long ago.
        self._next_sweep = max(self._next_sweep, self._context.clock.now() + _SWEEP_SECONDS)
        self._wake()

    def rest_seconds(self) -> float:
        """Seconds until the next sweep is worthwhile; new presence and exports call `wake`."""
        something = (
            self._presence_bytes > 0
            or self._exported is not None
            or self.presence.bytes > 0
            or self.unfinished_bytes > 0
        )
        return _SWEEP_SECONDS if something else _REST_SECONDS

    def sweep(self, now: float) -> None:
        """Drop expired presence, calls and the shared export, if a sweep is due."""
        if now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        self._presence_bytes = 0
        self._exported = None
        self.presence.sweep()
        if self._responder is not None:
            self._responder.expire()  # otherwise chunks of an incomplete call stay until the next call

    # --- messages ---------------------------------------------------------------------------------

    def _on_call(self, message: Message) -> None:
        """Handle a call unless the lease is lost: the new owner receives the call as well and executes it.

        A refusal from this server would make the client repeat the call, and apply it twice.
        """
        if self._responder is not None and not self._lease.lost:
            self._responder.on_message(message)

    def _on_ping(self, message: Message) -> None:
        if not (self._state.may_answer and message.reply and self._lease.valid()):
            return
        if self._pongs >= _PONGS_MAX:
            self._context.counters.pings_dropped += 1
            return
        self._pongs += 1
        self._spawn(self._pong(message.reply))

    async def _pong(self, reply: str) -> None:
        try:
            await self._context.transport.bus.publish(reply)
        finally:
            self._pongs -= 1

    def _on_awareness(self, message: Message) -> None:
        if not self._presence_bytes:
            self._wake()  # so that it is swept
        self._presence_bytes += len(message.data)
        if len(message.data) > AWARENESS_BYTES_MAX or self._presence_bytes > _PRESENCE_BYTES_MAX:
            self._context.counters.presence_dropped += 1
            return
        try:
            self.presence.apply(message.data)
        except CrdtError as error:
            self._log.debug("invalid presence message", problem=str(error))
            return
        self._touch()

    def _admit(self, asked: CallRequest) -> Served:
        """Check the caller's token for a chunk of a call; the body is checked when the call is complete."""
        token = self._context.rights.admit(asked.subject.split(".")[2], self._document_id, asked)
        if token is None:
            return self._serve
        return functools.partial(self._serve, token=token)

    async def _serve(
        self, verb: str, arguments: dict[str, object], token: Token | None = None
    ) -> Mapping[str, object]:
        self._context.rights.allow(verb, self._document_id, arguments, token)
        self._touch()
        action = audited(verb, arguments)
        return await recorded(action, self._document_id, token, self._call(verb, arguments))

"""Calls to a document's owner: reads and edits without a replica."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from lorogo_client import versions
from lorogo_client.auth.connection_pool import ConnectionPool
from lorogo_client.context import ClientContext
from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import NotAllowed, NotServed, Timeout
from lorogo_client.session.receipt import Receipt, from_answer
from lorogo_protocol.access.grants import VERBS, Access
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Body, Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.errors import Disconnected, NoResponders, PermissionDenied, RequestTimeout

Operation = dict[str, object]  # of a JSON Patch
#: Text is ISO 8601, an age ("10m") or a version ("v..."); an int is Unix nanoseconds, bytes are frontiers.
Moment = datetime | str | int | bytes

_START_SHARE = 0.9  # of the remaining time, for starting the document
_CREATE = frozenset({"patch", "import"})  # calls that create a document
_AGAIN = (Reason.NOT_OWNER, Reason.BUSY)  # sent before the server did anything


class DocumentApi:
    """Calls on one document. A call starts the document if no server serves it.

    `patch` and `import_` create a document that does not exist; every other call raises NoSuchDocument then.
    A call that the token does not grant raises NotAllowed before anything is sent. A call that the
    owner denies raises it, too.
    """

    def __init__(self, pool: ConnectionPool, document_id: str, token: str = "") -> None:
        """`token`: sent to the owner instead of the client's own token."""
        self._pool = pool
        self._settings = pool.settings
        self._token = token
        self.document_id = document_id

    async def get(
        self,
        paths: str | Sequence[str] | None = None,
        at: Moment | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, object]:
        """Return `value` (all of it) or `matches` (one list per JSONPath), and `frontiers`.

        `at`: as of a datetime (without a zone: local time), an age ("10m"), a version ("v..."), Unix
        nanoseconds, or frontiers. Raises InvalidMoment.
        """
        wanted = [paths] if isinstance(paths, str) else paths
        body = {"paths": None if wanted is None else list(wanted), "at": self._moment(at)}
        return await self._ask("get", body, timeout)

    async def version(self, *, timeout: float | None = None) -> dict[str, object]:
        """Return `frontiers`, `vector`, `sequence`, `lease`, `generation`."""
        return await self._ask("version", {}, timeout)

    async def status(self, *, timeout: float | None = None) -> dict[str, object]:
        """Return facts about the document, for display."""
        return await self._ask("status", {}, timeout)

    async def history(
        self, limit: int = 100, *, operations: bool = False, timeout: float | None = None
    ) -> list[dict[str, object]]:
        """Return versions, newest first: `time_ns`, `frontiers`, `sequence`, and `operations` on request.

        `operations`: the number of operations up to each version; None where it is no longer known.
        """
        answer = await self._ask("history", {"limit": limit, "operations": operations or None}, timeout)
        return list(calls.need(answer, "versions", list))

    async def export(self, at: Moment | None = None, *, timeout: float | None = None) -> bytes:
        """Return a Loro snapshot."""
        return (await self.snapshot(at, timeout=timeout))[0]

    async def snapshot(
        self, at: Moment | None = None, *, timeout: float | None = None
    ) -> tuple[bytes, bytes]:
        """Return a Loro snapshot and its frontiers."""
        answer = await self._ask("export", {"at": self._moment(at)}, timeout)
        return calls.need(answer, "payload", bytes), calls.need(answer, "frontiers", bytes)

    async def patch(
        self,
        operations: Sequence[Operation],
        if_frontiers: bytes | None = None,
        *,
        timeout: float | None = None,
    ) -> Receipt:
        """Apply a JSON Patch (RFC 6902), all of it or nothing."""
        given: object = operations
        if isinstance(given, str | bytes | Mapping):
            example = "[{'op': 'remove', 'path': '/x'}]"
            raise Refused(Reason.INVALID_REQUEST, f"a patch is a list of operations, as in {example}")
        body = {"operations": list(operations), "if_frontiers": if_frontiers}
        return from_answer(await self._do("patch", body, timeout))

    async def revert(self, at: Moment, *, timeout: float | None = None) -> Receipt:
        """Restore the content of a time or version, as a new change."""
        return from_answer(await self._do("revert", {"at": self._moment(at)}, timeout))

    async def fork(self, to: str, at: Moment | None = None, *, timeout: float | None = None) -> str:
        """Create a document with this content and return its id. Raises InvalidDocumentId."""
        check_document_id(to)
        self._pool.token_provider.require(to, Access.WRITE)
        answer = await self._do("fork", {"to": to, "at": self._moment(at)}, timeout)
        return calls.need(answer, "document", str)

    async def import_(self, payload: bytes, *, timeout: float | None = None) -> Receipt:
        """Fill an empty document with a snapshot; bytes that do not decode are refused before sending."""
        self._pool.token_provider.require(self.document_id, VERBS["import"])
        allowed = self._settings.call_seconds if timeout is None else timeout
        ends = self._pool.clock.now() + allowed
        deadline = asyncio.timeout(allowed)
        try:
            async with deadline:
                await self._pool.snapshot_checks.check(payload)
        except TimeoutError:
            if not deadline.expired():
                raise
            problem = (
                f"the snapshot for {self.document_id} was not decoded in {allowed:g} s; nothing was sent"
            )
            raise Timeout(problem) from None
        left = max(0.0, ends - self._pool.clock.now())
        return from_answer(await self._do("import", {"payload": payload}, left))

    async def delete(self, *, purge: bool = False, timeout: float | None = None) -> dict[str, object]:
        """Delete the document until `restore`; with `purge` erase it, so that it cannot be restored."""
        if purge:
            self._pool.token_provider.require(self.document_id, Access.ADMIN)
        return await self._do("delete", {"purge": True} if purge else {}, timeout)

    async def restore(self, *, timeout: float | None = None) -> dict[str, object]:
        """Undo a deletion; `generation` is higher after it."""
        return await self._do("restore", {}, timeout)

    async def compact(self, *, timeout: float | None = None) -> dict[str, object]:
        """Write a snapshot and purge the WAL: `snapshot_bytes`, `purged`, `sequence`."""
        return await self._do("compact", {}, timeout)

    def _moment(self, at: Moment | None) -> int | bytes | None:
        """Convert to the owner's form: Unix nanoseconds or frontiers."""
        return None if at is None else versions.moment(at, now_ns=self._pool.clock.wall_ns())

    async def _ask(self, verb: str, body: Body, timeout: float | None) -> dict[str, object]:
        """Make a call that changes nothing; repeat it if no answer comes."""
        return await self._call(verb, body, timeout, patience=self._settings.reply_seconds)

    async def _do(self, verb: str, body: Body, timeout: float | None) -> dict[str, object]:
        """Make a call that changes the document; repeat it only if no server received it."""
        return await self._call(verb, body, timeout, patience=None)

    async def _call(
        self, verb: str, body: Body, timeout: float | None, *, patience: float | None
    ) -> dict[str, object]:
        self._pool.token_provider.require(self.document_id, VERBS[verb])
        allowed = self._settings.call_seconds if timeout is None else timeout
        arguments = {name: value for name, value in body.items() if value is not None}

        async def over(context: ClientContext) -> dict[str, object]:
            async def once() -> dict[str, object]:
                seconds = min(allowed, patience or allowed)
                return await context.call(
                    verb, self.document_id, arguments, timeout=seconds, token=self._token
                )

            again = patience is not None
            return await self._retry(context, once, ends, retry_unanswered=again, creates=verb in _CREATE)

        ends = self._pool.clock.now() + allowed
        deadline = asyncio.timeout(allowed)
        try:
            async with deadline, self._pool.use(self.document_id) as context:
                return await over(context)
        except PermissionDenied as error:
            raise NotAllowed(str(error), document_id=self.document_id) from None
        except Refused as no:
            if no.reason is not Reason.PERMISSION_DENIED:
                raise
            raise NotAllowed(str(no), document_id=self.document_id) from None
        except TimeoutError:
            if not deadline.expired():
                raise
            perhaps = "" if patience else "; it may have been done"
            raise Timeout(f"{self.document_id} did not answer {verb} in {allowed:g} s{perhaps}") from None

    async def _retry(
        self,
        context: ClientContext,
        once: Callable[[], Awaitable[dict[str, object]]],
        ends: float,
        *,
        retry_unanswered: bool,
        creates: bool,
    ) -> dict[str, object]:
        attempt = 0
        while True:
            try:
                return await once()
            except NoResponders:
                pass  # no server serves the document
            except (RequestTimeout, Disconnected) as error:
                if not retry_unanswered:
                    raise Timeout(f"{error}; it may have been done") from None
            except Refused as no:
                if no.reason not in _AGAIN:
                    raise
            try:
                # less than the remaining time: NotServed names a reason, a timeout does not
                left = max(0.0, ends - context.clock.now()) * _START_SHARE
                await context.starter.served(self.document_id, timeout=left, creates=creates)
            except NotServed:
                raise
            except Disconnected:
                pass
            settings = context.settings
            least, most = settings.retry_seconds_min, settings.retry_seconds_max
            await asyncio.sleep(
                0 if attempt == 0 else backoff(attempt, least=least, most=most, jitter=context.rng.random())
            )
            attempt += 1

"""Handlers of the read operations. A read never creates a document: one that is not stored is 404 at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lorogo_client import Client, DocumentApi
from lorogo_client.errors import check_stored
from lorogo_client.versions import show_version
from lorogo_gateway.auth.call_token import document_of
from lorogo_gateway.documents import etags, schemas
from lorogo_gateway.documents import versions as moments
from lorogo_gateway.http.json_encoder import rendered, rendered_in_thread
from lorogo_gateway.http.operations import CheckedRequest, checked_request, principal
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Transport
from lorogo_transport.stores import catalogue
from lorogo_transport.stores.catalogue import DocumentSummary

_JSON = "application/json"
_SNAPSHOT = "application/octet-stream"
_VARIES = {"Vary": "Accept"}  # two representations at one address


async def stored_document(transport: Transport, document_id: str) -> DocumentSummary:
    """Return what is stored of a document. Raises HttpProblem 404."""
    sight = await catalogue.read_summary(transport, document_id)
    if not sight.known:
        raise HttpProblem(404, "not-found", f"there is no document {document_id!r}")
    return sight


def json_response(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return the value as a JSON response."""
    return Response(rendered(value), status, headers=headers, media_type=_JSON)


class DocumentReads:
    """Handlers of the operations that change nothing."""

    def __init__(self, client: Client, settings: GatewaySettings, clock: Clock) -> None:
        self._client = client
        self._seconds = settings.call_seconds
        self._clock = clock
        self._turns = asyncio.Semaphore(settings.reads_max)
        self._catalogue = catalogue.Catalogue(client.transport, clock)

    async def page(self, request: Request) -> Response:
        values = checked_request(request).values
        who = principal(request)
        page = await self._catalogue.page(
            after=values.get("after", ""),
            prefix=values.get("prefix", ""),
            limit=values["limit"],
            only=None if who.sees_all else who.reads,
        )
        return json_response({"documents": [schemas.summary(row) for row in page.rows], "next": page.next})

    async def get(self, request: Request) -> Response:
        what = checked_request(request)
        document_id, at = what.values["id"], what.values.get("at")
        have = what.values.get("If-None-Match", "")
        sight = await stored_document(self._client.transport, document_id)
        check_stored(sight)
        document = document_of(self._client, document_id, principal(request))
        # outside of the read slot: a document that is starting must not hold a slot
        here: Any = await document.version(timeout=self._seconds)
        if have and at is None and etags.names(have, here["frontiers"]):
            return _unchanged(here["frontiers"])
        async with self._read_slot():
            try:
                return await self._content(document, what, at, have)
            except Refused as no:
                raise _path_problem(no) from None

    @asynccontextmanager
    async def _read_slot(self) -> AsyncIterator[None]:
        """Hold one of `reads_max` slots: NATS disconnects slow consumers. Raises HttpProblem 503."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._turns.acquire()
        except TimeoutError:
            busy = "too many documents are being read at once; try again"
            raise HttpProblem(503, "busy", busy, headers={"Retry-After": "1"}) from None
        try:
            yield
        finally:
            self._turns.release()

    async def _content(
        self, document: DocumentApi, what: CheckedRequest, at: int | bytes | None, have: str
    ) -> Response:
        paths = what.values.get("path")
        if what.wants == _SNAPSHOT:
            if paths is not None:
                raise HttpProblem(
                    400, "invalid-parameter", "a snapshot is of the whole document: leave out path"
                )
            payload, frontiers = await document.snapshot(at, timeout=self._seconds)
            # a snapshot of an earlier version is built for each request and has no stable entity tag
            headers = _VARIES if at is not None else {"ETag": etags.tag(frontiers), **_VARIES}
            return Response(payload, headers=headers, media_type=_SNAPSHOT)
        answer: Any = await document.get(paths, at, timeout=self._seconds)
        if have and etags.names(have, answer["frontiers"]):
            return _unchanged(answer["frontiers"])
        value = answer["value"] if paths is None else answer["matches"]
        headers = {"ETag": etags.tag(answer["frontiers"]), **_VARIES}
        return Response(await rendered_in_thread(value), headers=headers, media_type=_JSON)

    async def history(self, request: Request) -> Response:
        values = checked_request(request).values
        document_id = values["id"]
        check_stored(await stored_document(self._client.transport, document_id))
        document = document_of(self._client, document_id, principal(request))
        versions: Any = await document.history(values["limit"], timeout=self._seconds)
        shown = [
            {
                "version": show_version(one["frontiers"]),
                "time": moments.show(one["time_ns"]),
                "sequence": one["sequence"],
            }
            for one in versions
        ]
        return json_response({"document": document_id, "versions": shown})

    async def status(self, request: Request) -> Response:
        document_id = checked_request(request).values["id"]
        transport = self._client.transport
        sight = await stored_document(transport, document_id)
        row = await catalogue.of_one(transport, sight, now_ns=self._clock.wall_ns())
        row["edited_ns"] = catalogue.edited_ns(sight.last, sight.snapshot)
        owner = await catalogue.ask_owner(transport, document_id) if row["state"] == "UP" else None
        return json_response(schemas.summary(row) | {"owner": schemas.owner(owner)})


def _unchanged(frontiers: bytes) -> Response:
    return Response(status_code=304, headers={"ETag": etags.tag(frontiers), **_VARIES})


def _path_problem(no: Refused) -> Exception:
    """Return the owner's refusal as an error; INVALID_REQUEST means a bad `path`: `at` has its own reason."""
    if no.reason is not Reason.INVALID_REQUEST:
        return no
    return HttpProblem(422, "invalid-path", str(no))

"""Handlers of the write operations. The document's owner applies each change; the response is its receipt."""

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from lorogo_client import Client, DocumentApi, NoSuchDocument, Receipt
from lorogo_client.errors import check_stored
from lorogo_client.versions import show_version
from lorogo_gateway.auth.call_token import document_of
from lorogo_gateway.documents import etags
from lorogo_gateway.documents.reads import json_response, stored_document
from lorogo_gateway.http.operations import checked_request, principal
from lorogo_gateway.problems import HttpProblem
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_transport.stores.catalogue import read_summary

_JSON = "application/json"


class DocumentWrites:
    """Handlers of the operations that change something."""

    def __init__(
        self, client: Client, settings: GatewaySettings, moment: Callable[[str], int | bytes]
    ) -> None:
        self._client = client
        self._seconds = settings.call_seconds
        self._moment = moment

    def _document(self, request: Request) -> DocumentApi:
        """Return the API of the document in the path, with the principal's token."""
        return document_of(self._client, checked_request(request).values["id"], principal(request))

    async def patch(self, request: Request) -> Response:
        what = checked_request(request)
        document_id = what.values["id"]
        document = self._document(request)
        expected = await self._matched(document, what.values.get("If-Match"))
        try:
            receipt = await document.patch(what.body, expected, timeout=self._seconds)
        except Refused as no:
            if expected is not None and no.reason is Reason.CONFLICT:
                raise _changed() from None
            raise
        return _receipt(document_id, receipt)

    async def _matched(self, document: DocumentApi, header: str | None) -> bytes | None:
        """Return the version that the patch must apply to; None without If-Match or for `*`.

        Raises HttpProblem 412 if the document has none of the versions in the header.
        """
        if header is None:
            return None
        sight = await read_summary(self._client.transport, document.document_id)
        if not sight.known:
            raise HttpProblem(412, "precondition-failed", "If-Match: the document does not exist")
        check_stored(sight)
        if header == "*":
            return None
        here: Any = await document.version(timeout=self._seconds)
        frontiers: bytes = here["frontiers"]
        if not etags.names_strongly(header, frontiers):
            raise _changed()
        return frontiers

    async def put(self, request: Request) -> Response:
        what = checked_request(request)
        document_id = what.values["id"]
        sight = await read_summary(self._client.transport, document_id)
        check_stored(sight)
        document = self._document(request)
        if what.body_type == _JSON:
            receipt = await self._fill(document, what.body)
        elif not what.body:
            raise HttpProblem(422, "invalid-update", "the body is empty; a Loro snapshot is not")
        else:
            receipt = await document.import_(what.body, timeout=self._seconds)
        return _receipt(document_id, receipt, 200 if sight.known else 201)

    async def _fill(self, document: DocumentApi, content: dict[str, object]) -> Receipt:
        """Import JSON through a JSON Patch, so that both use the same conversion to containers.

        Loro does not store empty roots: content of empty roots alone is refused instead of ACKed.
        """
        if content and not any(content.values()):
            names = ", ".join(repr(name[:60]) for name in list(content)[:5])
            detail = (
                f"every root is empty ({names}), and a document keeps no empty roots; put something in one"
            )
            raise HttpProblem(422, "nothing-to-store", detail)
        frontiers = crdt.no_frontiers()
        try:
            here: Any = await document.version(timeout=self._seconds)
        except NoSuchDocument:
            pass  # the patch creates it
        else:
            if here["vector"] != crdt.nothing_known():
                raise HttpProblem(409, "conflict", "the document is not empty; import into a new one")
        whole: dict[str, object] = {"op": "add", "path": "", "value": content}
        return await document.patch([whole], frontiers, timeout=self._seconds)

    async def revert(self, request: Request) -> Response:
        what = checked_request(request)
        document_id, at = what.values["id"], self._moment(what.body["at"])
        check_stored(await stored_document(self._client.transport, document_id))
        receipt = await self._document(request).revert(at, timeout=self._seconds)
        return _receipt(document_id, receipt)

    async def fork(self, request: Request) -> Response:
        what = checked_request(request)
        document_id, to = what.values["id"], what.body["to"]
        at = self._moment(what.body["at"]) if "at" in what.body else None
        check_stored(await stored_document(self._client.transport, document_id))
        made = await self._document(request).fork(to, at, timeout=self._seconds)
        return json_response(
            {"document": made, "forked_from": document_id}, 201, {"Location": f"/v1/documents/{made}"}
        )

    async def delete(self, request: Request) -> Response:
        values = checked_request(request).values
        document_id, purge = values["id"], values["purge"]
        sight = await stored_document(self._client.transport, document_id)
        check_stored(sight, deleted=True)
        await self._document(request).delete(purge=purge, timeout=self._seconds)
        return json_response({"document": document_id, "deleted": True, "erased": purge or sight.erased})

    async def restore(self, request: Request) -> Response:
        document_id = checked_request(request).values["id"]
        check_stored(await stored_document(self._client.transport, document_id), deleted=True)
        await self._document(request).restore(timeout=self._seconds)
        return json_response({"document": document_id, "restored": True})

    async def reset(self, request: Request) -> Response:
        document_id = checked_request(request).values["id"]
        await stored_document(self._client.transport, document_id)
        return json_response({"document": document_id, "reset": await self._client.reset(document_id)})


def _receipt(document_id: str, receipt: Receipt, status: int = 200) -> Response:
    facts = {
        "document": document_id,
        "version": show_version(receipt.frontiers),
        "sequence": receipt.sequence,
        "lease": receipt.lease,
        "durability": receipt.durability,
        "log_id": receipt.log_id,
    }
    return json_response(facts, status, {"ETag": etags.tag(receipt.frontiers)})


def _changed() -> HttpProblem:
    return HttpProblem(412, "precondition-failed", "If-Match: the document has another version now")

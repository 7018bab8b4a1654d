"""The operations on documents: their parameters, bodies and responses. `reads` and `writes` handle them."""

from lorogo_client import Client
from lorogo_gateway.auth.needs import OnDocument, SomeDocument
from lorogo_gateway.documents import etags, schemas, versions
from lorogo_gateway.documents.reads import DocumentReads
from lorogo_gateway.documents.writes import DocumentWrites
from lorogo_gateway.http.operations import Operation, Parameter, ResponseSpec, Schema
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.access.grants import Access
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.limits import KIB
from lorogo_transport.clock import Clock, SystemClock

JSON = "application/json"
SNAPSHOT = "application/octet-stream"

_ALL = "/v1/documents"
_ONE = "/v1/documents/{id}"
SMALL_BYTES_MAX = 64 * KIB  # of a body that names a document or a version
_ETAG = {"ETag": "The version, in quotes."}

_ID = Parameter("id", "path", "The document.", schemas.DOCUMENT_ID, required=True, parse=check_document_id)
_READS, _WRITES = OnDocument(Access.READ), OnDocument(Access.WRITE)
_TAGS: Schema = {
    "anyOf": [
        {"type": "string", "const": "*"},
        {"type": "string", "pattern": etags.PATTERN, "description": 'entity tags are: "v...", or * alone'},
    ],
}


def operations(
    client: Client, settings: GatewaySettings, *, clock: Clock | None = None
) -> tuple[Operation, ...]:
    """Return all operations on documents."""
    chosen = clock or SystemClock()
    moment = versions.parser(chosen.wall_ns)
    reading = DocumentReads(client, settings, chosen)
    writing = DocumentWrites(client, settings, moment)
    about = "Read an earlier state: a version (v...), a time with its zone, or an age (10m)."
    at = Parameter("at", "query", about, versions.SCHEMA, parse=moment)
    return (*_reads(reading, settings, at), *_writes(writing))


def _reads(reading: DocumentReads, settings: GatewaySettings, at: Parameter) -> tuple[Operation, ...]:
    return (
        Operation(
            method="GET",
            path=_ALL,
            name="list",
            need=SomeDocument(),
            about="List documents by id, one page at a time.",
            handler=reading.page,
            parameters=(
                Parameter(
                    "after", "query", "Only documents after this id.", {"type": "string", "maxLength": 128}
                ),
                Parameter(
                    "limit",
                    "query",
                    "Number of documents.",
                    {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": settings.page_documents_max,
                        "default": min(100, settings.page_documents_max),
                    },
                ),
                Parameter(
                    "prefix",
                    "query",
                    "Only documents whose id has this prefix.",
                    {"type": "string", "maxLength": 128},
                ),
            ),
            answers={200: ResponseSpec("A page.", {JSON: schemas.PAGE})},
        ),
        Operation(
            method="GET",
            path=_ONE,
            name="get",
            need=_READS,
            about="Read the document's value, the matches of JSONPath expressions, or a Loro snapshot.",
            handler=reading.get,
            parameters=(
                _ID,
                Parameter(
                    "path",
                    "query",
                    "A JSONPath expression (RFC 9535); may be repeated.",
                    {
                        "type": "array",
                        "items": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 1_000,
                            "examples": ["$.body"],
                        },
                        "maxItems": 100,
                    },
                ),
                at,
                Parameter("If-None-Match", "header", "Versions that the client has.", _TAGS),
            ),
            answers={
                200: ResponseSpec(
                    "The document.",
                    {JSON: {"anyOf": [schemas.VALUE, schemas.MATCHES]}, SNAPSHOT: schemas.SNAPSHOT},
                    _ETAG | {"Vary": "Accept"},
                ),
                304: ResponseSpec("The client has this version.", headers=_ETAG),
            },
            problems=(404, 410, 413, 422),
        ),
        Operation(
            method="GET",
            path=f"{_ONE}/history",
            name="history",
            need=_READS,
            about="List the document's dated versions, newest first.",
            handler=reading.history,
            parameters=(
                _ID,
                Parameter(
                    "limit",
                    "query",
                    "Number of versions.",
                    {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
                ),
            ),
            answers={200: ResponseSpec("Versions.", {JSON: schemas.HISTORY})},
            problems=(404, 410),
        ),
        Operation(
            method="GET",
            path=f"{_ONE}/status",
            name="status",
            need=_READS,
            about="Read what is stored of the document and its owner's state. Does not start the document.",
            handler=reading.status,
            parameters=(_ID,),
            answers={200: ResponseSpec("The status.", {JSON: schemas.STATUS})},
            problems=(404,),
        ),
    )


def _writes(writing: DocumentWrites) -> tuple[Operation, ...]:
    receipt = ResponseSpec("Saved.", {JSON: schemas.RECEIPT}, _ETAG)
    return (
        Operation(
            method="PATCH",
            path=_ONE,
            name="patch",
            need=_WRITES,
            about="Apply a JSON Patch, all of it or nothing. Creates the document if it does not exist.",
            handler=writing.patch,
            parameters=(
                _ID,
                Parameter(
                    "If-Match", "header", "Apply only if the document has one of these versions.", _TAGS
                ),
            ),
            body={"application/json-patch+json": schemas.PATCH, JSON: schemas.PATCH},
            answers={200: receipt},
            problems=(409, 410, 412, 422, 507),
        ),
        Operation(
            method="PUT",
            path=_ONE,
            name="import",
            need=_WRITES,
            about="Fill an empty or new document with a Loro snapshot, or with JSON.",
            handler=writing.put,
            parameters=(_ID,),
            body={SNAPSHOT: schemas.SNAPSHOT, JSON: schemas.CONTENT},
            answers={
                200: receipt,
                201: ResponseSpec("Saved, in a new document.", {JSON: schemas.RECEIPT}, _ETAG),
            },
            problems=(409, 410, 422, 507),
        ),
        Operation(
            method="DELETE",
            path=_ONE,
            name="delete",
            need=OnDocument(Access.WRITE, flags={"purge": Access.ADMIN}),
            audit="erase",
            audit_if="purge",
            about="Delete the document; `restore` undoes this unless it was purged.",
            handler=writing.delete,
            parameters=(
                _ID,
                Parameter("purge", "query", "Erase it permanently.", {"type": "boolean", "default": False}),
            ),
            answers={200: ResponseSpec("Deleted.", {JSON: schemas.DELETED})},
            problems=(404,),
        ),
        Operation(
            method="POST",
            path=f"{_ONE}/fork",
            name="fork",
            need=OnDocument(Access.READ, others={"to": Access.WRITE}),
            about="Create a document with the content of this one.",
            handler=writing.fork,
            parameters=(_ID,),
            body={JSON: schemas.FORK},
            body_bytes_max=SMALL_BYTES_MAX,
            answers={
                201: ResponseSpec("Created.", {JSON: schemas.FORKED}, {"Location": "The new document."})
            },
            problems=(404, 409, 410, 507),
        ),
        Operation(
            method="POST",
            path=f"{_ONE}/revert",
            name="revert",
            need=_WRITES,
            about="Revert the content to a version or a time, as a new change.",
            handler=writing.revert,
            parameters=(_ID,),
            body={JSON: schemas.REVERT},
            body_bytes_max=SMALL_BYTES_MAX,
            answers={200: receipt},
            problems=(404, 409, 410, 422, 507),
        ),
        Operation(
            method="POST",
            path=f"{_ONE}/restore",
            name="restore",
            need=_WRITES,
            about="Undo a deletion.",
            handler=writing.restore,
            parameters=(_ID,),
            answers={200: ResponseSpec("Restored.", {JSON: schemas.RESTORED})},
            problems=(404, 409, 507),
        ),
        Operation(
            method="POST",
            path=f"{_ONE}/reset",
            name="reset",
            need=OnDocument(Access.ADMIN),
            audit="reset",
            about="Clear the state ERROR, so that servers load the document again.",
            handler=writing.reset,
            parameters=(_ID,),
            answers={200: ResponseSpec("Reset, or not in ERROR.", {JSON: schemas.RESET})},
            problems=(404,),
        ),
    )

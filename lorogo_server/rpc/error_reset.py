"""RPC that resets a document in ERROR: `loro.reset.{id}`, for callers without rights on the status bucket.

Any server may handle it, because a document in ERROR has no owner. It is a compare-and-swap from ERROR to
DOWN, so it does not disturb a document that a server acquires meanwhile.
"""

from collections.abc import Callable, Mapping
from functools import partial

from lorogo_protocol import ids
from lorogo_protocol.access.tokens import Token
from lorogo_protocol.errors import InvalidDocumentId
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.status import Down, Failed
from lorogo_server.context import ServerContext
from lorogo_server.rpc.rights import RESET, recorded
from lorogo_transport.errors import WrongLastSequence
from lorogo_transport.ports import Subscription
from lorogo_transport.rpc.calls import CallRequest, Responder, Served
from lorogo_transport.tasks import Work
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)


async def serve_resets(context: ServerContext, spawn: Callable[[Work], None]) -> Subscription:
    """Subscribe one server to reset requests, as a member of the queue group."""
    responder = Responder(
        context.transport.bus,
        context.clock,
        partial(_admit, context),
        spawn=spawn,
        budget=context.reply_budget,
        on_refused=context.counters.refused_call,
    )
    return await context.transport.bus.subscribe(
        subjects.RESET_ALL, responder.on_message, queue=subjects.INIT_QUEUE
    )


def _admit(context: ServerContext, asked: CallRequest) -> Served:
    document_id = subjects.document_of(asked.subject)
    try:
        ids.check_document_id(document_id)
    except InvalidDocumentId as error:
        raise Refused(Reason.INVALID_DOCUMENT_ID, str(error)) from None
    token = context.rights.admit(RESET, document_id, asked)

    async def serve(_verb: str, _arguments: dict[str, object]) -> Mapping[str, object]:
        return await recorded(RESET, document_id, token, _reset(context, document_id, token))

    return serve


async def _reset(context: ServerContext, document_id: str, token: Token | None) -> Mapping[str, object]:
    """Write DOWN if the document is in ERROR."""
    entry = await context.statuses.read(document_id)
    if entry is None or not isinstance(entry.status, Failed):
        return {"reset": False}
    try:
        await context.statuses.write(
            document_id,
            Down(context.clock.wall_ns()),
            expected_revision=entry.revision,
            journal_of=entry.journal_of,
        )
    except WrongLastSequence:
        return {"reset": False}
    log.info("document reset", document=document_id, by="" if token is None else token.subject)
    return {"reset": True}

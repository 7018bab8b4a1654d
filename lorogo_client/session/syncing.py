"""Sync with the owner: the request, and the effect of its answer on the replica."""

from dataclasses import dataclass

from lorogo_client.context import ClientContext
from lorogo_client.replica import LocalReplica, is_shallow
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Body, Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.wire import WIRE, later

_NO_HEADS = b"\x00"  # the frontiers of an empty document
_MODES = ("current", "updates", "snapshot", "vector")


@dataclass(frozen=True, slots=True)
class Synced:
    """The owner's checked answer."""

    mode: str  # current, updates or snapshot
    payload: bytes
    vector: bytes
    sequence: int
    lease: int
    generation: int
    presence: bytes
    incomplete: bool = False


async def ask(
    context: ClientContext,
    document_id: str,
    replica: LocalReplica | None,
    *,
    generation: int | None,
    edited: bool,
) -> Synced:
    """Sync by frontiers, and by version vector with local edits or at the owner's request.

    Without a replica it requests the whole state.
    """
    body: dict[str, object] = {"frontiers": _NO_HEADS}
    if replica is not None:
        version = replica.version()
        body["frontiers"] = version.frontiers
        if edited or replica.open_edits:
            body["vector"] = version.vector
        if generation is not None:
            body["generation"] = generation
    answer = await _call(context, document_id, body)
    if answer.get("mode") == "vector":
        body["vector"] = crdt.nothing_known() if replica is None else replica.version().vector
        answer = await _call(context, document_id, body)
    return _checked(answer)


async def ask_since(
    context: ClientContext, document_id: str, vector: bytes, *, generation: int | None = None, token: str = ""
) -> Synced:
    """Sync without a replica: operations that the vector lacks, or else a snapshot.

    `token`: of the user for whom it is made; default: the client's own.
    """
    body: dict[str, object] = {"vector": vector}
    if generation is not None:
        body["generation"] = generation
    return _checked(await _call(context, document_id, body, token))


def needs_fresh(answer: Synced, replica: LocalReplica, *, same_generation: bool) -> bool:
    """Return True if the replica cannot import the answer, so the owner's state must replace it."""
    if replica.blank:
        return False
    return not same_generation or (answer.mode == "snapshot" and is_shallow(answer.payload))


def fresh_replica(answer: Synced) -> crdt.Replica:
    """Return a new replica with the owner's state. Raises InvalidUpdate."""
    if not answer.payload:
        return crdt.Replica()
    return crdt.Replica.from_snapshot(answer.payload)


async def _call(context: ClientContext, document_id: str, body: Body, token: str = "") -> dict[str, object]:
    seconds = context.settings.reply_seconds
    return await context.call("sync", document_id, {**body, "wire": WIRE}, timeout=seconds, token=token)


def _checked(answer: Body) -> Synced:
    if problem := later(answer.get("wire"), "the document's server", advice="update lorogo here"):
        raise Refused(Reason.INVALID_REQUEST, problem)
    mode = calls.need(answer, "mode", str)
    if mode not in _MODES or mode == "vector":
        raise Refused(Reason.INVALID_REQUEST, f"the owner answered a sync with the mode {mode[:20]!r}")
    return Synced(
        mode=mode,
        payload=calls.maybe(answer, "payload", bytes) or b"",
        vector=calls.need(answer, "vector", bytes),
        sequence=calls.need(answer, "sequence", int),
        lease=calls.need(answer, "lease", int),
        generation=calls.need(answer, "generation", int),
        presence=calls.maybe(answer, "presence", bytes) or b"",
        incomplete=calls.maybe(answer, "incomplete", bool) or False,
    )

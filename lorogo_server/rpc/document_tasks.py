"""Work of calls on a document's replica, for the event loop or a child process (`execution.py`).

A task gets a private copy if it edits or checks out. It returns bytes: an encoded reply or an update.
"""

from collections.abc import Sequence

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro.crdt import CrdtPanic, Replica
from lorogo_protocol.loro.shown_version import show_version, unknown_version
from lorogo_protocol.messages import calls
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.sandbox.work_meter import Spend
from lorogo_server.values import document_value, patch, query
from lorogo_server.values.document_value import TooDeep

_READS_PER_UNIT = 4  # reading a value takes a quarter of the time of writing it


def read(replica: Replica, spend: Spend, *, wanted: bytes | None, paths: Sequence[str] | None) -> bytes:
    """Return the reply to `get`: the value of the wanted version, or what the paths select in it."""
    frontiers = replica.frontiers() if wanted is None else wanted
    doc = replica.settled()
    try:
        if wanted is not None:
            replica.check_out(wanted)
            doc = replica.doc  # settling would leave the version
        value = document_value.document_value(doc, lambda units: spend(units // _READS_PER_UNIT))
    except TooDeep as error:
        raise Refused(Reason.TOO_LARGE, str(error)) from None
    except CrdtError:  # also HistoryTrimmed: the history no longer lists it
        if wanted is None:
            raise
        raise no_version(wanted) from None
    if wanted is not None:  # Loro shows a root that was created later as an empty one
        value = {name: root for name, root in value.items() if root not in ("", [], {})}
    try:
        if paths is None:
            return calls.encode({"value": query.to_json(value), "frontiers": frontiers})
        return calls.encode({"matches": query.query(value, paths, spend), "frontiers": frontiers})
    except (query.QueryError, TooDeep) as error:
        raise Refused(Reason.INVALID_REQUEST, str(error)) from None


def patched(replica: Replica, spend: Spend, *, operations: list[object]) -> bytes:
    """Return the patch as an update; empty if it changes nothing."""
    before = replica.version().vector
    try:
        patch.apply_patch(replica.settled(), operations, spend)
        return _added(replica, before)
    except CrdtPanic:
        raise
    except (patch.PatchError, CrdtError) as error:
        raise Refused(Reason.PATCH_FAILED, str(error)) from None


def reverted(replica: Replica, _: Spend, *, wanted: bytes) -> bytes:
    """Return the update that restores the content of the wanted version; empty if it changes nothing."""
    before = replica.version().vector
    _revert(replica, wanted)
    return _added(replica, before)


def content_at(replica: Replica, _: Spend, *, wanted: bytes) -> bytes:
    """Return the reply to `export` of the wanted version: a snapshot with its content."""
    _revert(replica, wanted)
    return calls.encode({"payload": replica.snapshot(), "frontiers": replica.frontiers()})


def _revert(replica: Replica, wanted: bytes) -> None:
    replica.settled()  # a panic here concerns the document; a panic below concerns the old version only
    try:
        replica.revert_to(wanted)
    except CrdtError:
        raise no_version(wanted) from None


def _added(replica: Replica, before: bytes) -> bytes:
    """Return the changes since that version as an update; empty if there are none."""
    return b"" if replica.version().vector == before else replica.updates_since(before)


def no_version(frontiers: bytes) -> Refused:
    """Return the refusal for a version that the document does not have."""
    return Refused(Reason.UNKNOWN_VERSION, unknown_version(show_version(frontiers)))

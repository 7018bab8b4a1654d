"""Executes calls on large documents in a child process, to keep the event loop free.

`Host.needs_child` selects these calls. The child has a private copy of the document: it edits and checks out
that copy without forking it, under its own peer id.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.limits import PATCH_WORK_MAX
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, Version
from lorogo_protocol.loro.shown_version import show_version, unknown_version
from lorogo_protocol.messages import calls, reasons
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.document.host import Host
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.sandbox.call_executor import OverBudget, WorkMeter, unmetered
from lorogo_server.sandbox.child_process import Work
from lorogo_server.values import document_value, query
from lorogo_server.values import patch as patching
from lorogo_server.values.document_value import TooDeep

PATCH_TOO_LARGE = "the patch as a whole reads or writes too much; send it as several patches"


@dataclass(frozen=True, slots=True)
class Export:
    """A snapshot of a document, its version and its last WAL sequence."""

    data: bytes
    version: Version
    sequence: int


class _Exported(Exception):
    """A shared export has the snapshot already."""

    def __init__(self, data: bytes) -> None:
        self.data = data


async def run(
    host: Host,
    work: Callable[[Replica], Work],
    *,
    call: Call | None = None,
    exports: bool = False,
) -> bytes:
    """Run the work in a child and return its result. `work` gets the document right before the fork.

    Raises Refused if the generation changes during the call, if the document is loaded again after the
    fork, or as `require_readable` does.
    """
    size, loaded, generation = host.size, host.loaded, host.loaded.facts.generation

    def check() -> None:
        require_readable(host)
        if host.loaded.facts.generation != generation:
            raise Refused(Reason.BUSY, "the document was deleted and restored meanwhile; retry")

    def begin() -> Work:
        nonlocal size, loaded
        check()
        size, loaded = host.size, host.loaded
        return work(loaded.intake.replica)

    done, seconds = await host.context.children.run(host.document_id, begin, exports=exports)
    if call is not None:
        host.costs.took(call, size, seconds)
    check()
    if host.loaded is not loaded:  # the child's copy may have been damaged
        raise Refused(Reason.BUSY, "the document was loaded again meanwhile; retry")
    return done


def require_readable(host: Host, *, deleted: bool = False) -> None:
    """Raise Refused unless this server owns the document and its copy in memory is up to date.

    `deleted`: allow a deleted document as well.
    """
    if not (host.state.is_up and host.lease.valid()):
        raise Refused(Reason.NOT_OWNER, "this server cannot confirm its lease of the document; retry")
    if not host.state.is_readable:
        raise Refused(Reason.BUSY, "the document is being loaded again; retry")
    if host.loaded.intake.deleted and not deleted:
        erased = host.loaded.facts.erased_ns
        raise Refused(Reason.DELETED, reasons.ERASED if erased else reasons.DELETED)


async def _shared(
    host: Host, key: tuple[object, ...], start: Callable[[], Coroutine[None, None, bytes]]
) -> bytes:
    """Join an identical call under way, or start it.

    A client repeats a call after a timeout; a second child would start the work over.
    """
    task = host.shared_calls.get(key)
    if task is None:
        task = host.shared_calls[key] = asyncio.ensure_future(start())

        def ended(done: "asyncio.Future[bytes]") -> None:
            host.shared_calls.pop(key, None)
            if not done.cancelled():
                done.exception()  # retrieve it: every caller may have given up

        task.add_done_callback(ended)
    return await asyncio.shield(task)


@contextmanager
def measured(host: Host, call: Call) -> Iterator[None]:
    """Measure a call on the event loop or in a thread."""
    size, began = host.size, host.context.clock.now()
    yield
    host.costs.took(call, size, host.context.clock.now() - began)


async def export(host: Host) -> Export:
    """Return a current snapshot of a document of any size; concurrent syncs share one export."""
    intake, endpoint = host.loaded.intake, host.endpoint
    known = endpoint.exported(intake.replica.version().vector)
    if known is None and not host.needs_child(Call.EXPORT):
        with measured(host, Call.EXPORT):
            known = endpoint.snapshot_of(intake.replica)
    if known is not None:
        return Export(known, intake.replica.version(), intake.head.sequence)
    as_of = intake.replica.version(), intake.head.sequence

    def begin(replica: Replica) -> Work:
        nonlocal as_of
        as_of = replica.version(), host.loaded.intake.head.sequence
        if (known := endpoint.exported(as_of[0].vector)) is not None:
            raise _Exported(known)
        return replica.snapshot

    try:
        data = await run(host, begin, call=Call.EXPORT, exports=True)
    except _Exported as found:
        data = found.data
    else:
        endpoint.keep_exported(as_of[0].vector, data)
    return Export(data, *as_of)


async def export_at(host: Host, wanted: bytes) -> tuple[bytes, bytes]:
    """Return a snapshot with the content of the wanted version, and its heads."""
    packed = await _shared(
        host, ("export", wanted), lambda: run(host, lambda replica: partial(_content_at, replica, wanted))
    )
    facts = calls.decode(packed)
    return calls.need(facts, "payload", bytes), calls.need(facts, "frontiers", bytes)


async def updates_since(host: Host, vector: bytes) -> tuple[bytes, Version, int]:
    """Return the updates missing in the vector, and the version and WAL sequence that they lead to."""
    as_of = host.loaded.intake.replica.version(), host.loaded.intake.head.sequence

    def begin(replica: Replica) -> Work:
        nonlocal as_of
        if not replica.can_serve_since(vector):
            raise Refused(Reason.BUSY, "the history that the client needs was trimmed meanwhile; retry")
        as_of = replica.version(), host.loaded.intake.head.sequence
        return partial(replica.updates_since, vector)

    return await run(host, begin, exports=True), *as_of


async def read(host: Host, wanted: bytes | None, paths: Sequence[str] | None) -> calls.Body:
    """Return the reply to `get`, encoded by the child."""
    call = Call.VALUE if wanted is None else None
    key = (
        "get",
        wanted,
        None if paths is None else tuple(paths),
        host.loaded.intake.replica.version().vector,
    )
    return calls.EncodedBody(
        await _shared(
            host, key, lambda: run(host, lambda replica: partial(_read, replica, wanted, paths), call=call)
        )
    )


async def revert(host: Host, wanted: bytes) -> bytes | None:
    """Return the update that restores the content of the wanted version; None if it changes nothing."""
    return await run(host, lambda replica: partial(_reverted, replica, wanted)) or None


async def patch(host: Host, operations: list[object], check: Callable[[], None]) -> bytes | None:
    """Return the patch as an update; None if it changes nothing. `check` is called before the fork."""

    def begin(replica: Replica) -> Work:
        check()
        return partial(_patched, replica, operations)

    return await run(host, begin, call=Call.PATCH) or None


# --- in the child ---------------------------------------------------------------------------------


def _read(replica: Replica, wanted: bytes | None, paths: Sequence[str] | None) -> bytes:
    frontiers = replica.frontiers() if wanted is None else wanted
    try:
        if wanted is not None:
            _at(replica, wanted)
        doc = replica.settled() if wanted is None else replica.doc  # settling would leave the version
        value = query.to_json(document_value.document_value(doc, unmetered))
    except TooDeep as error:
        raise Refused(Reason.TOO_LARGE, str(error)) from None
    if wanted is not None:
        value = without_later_roots(value)
    if paths is None:
        return calls.encode({"value": value, "frontiers": frontiers})
    try:
        return calls.encode({"matches": query.query(value, paths), "frontiers": frontiers})
    except (query.QueryError, TooDeep) as error:
        raise Refused(Reason.INVALID_REQUEST, str(error)) from None


def _at(replica: Replica, wanted: bytes) -> None:
    replica.settled()  # a panic here concerns the document; a panic below concerns the old version only
    try:
        replica.check_out(wanted)
    except CrdtError:  # also HistoryTrimmed: the history no longer lists it
        raise no_version(wanted) from None


def _content_at(replica: Replica, wanted: bytes) -> bytes:
    replica.write_as(_new_peer())
    try:
        replica.revert_to(wanted)
    except CrdtError:  # as `_at`: the document is settled here
        raise no_version(wanted) from None
    return calls.encode({"payload": replica.snapshot(), "frontiers": replica.frontiers()})


def _reverted(replica: Replica, wanted: bytes) -> bytes:
    before = replica.version().vector
    replica.write_as(_new_peer())
    try:
        replica.revert_to(wanted)
    except CrdtError:  # as `_at`: the document is settled here
        raise no_version(wanted) from None
    return added(replica, before) or b""


def _patched(replica: Replica, operations: list[object]) -> bytes:
    before = replica.version().vector
    replica.write_as(_new_peer())
    try:
        patching.apply_patch(replica.settled(), operations, WorkMeter(PATCH_WORK_MAX).spend)
        return added(replica, before) or b""
    except CrdtPanic:
        raise
    except OverBudget:
        raise Refused(Reason.PATCH_FAILED, PATCH_TOO_LARGE) from None
    except (patching.PatchError, CrdtError) as error:
        raise Refused(Reason.PATCH_FAILED, str(error)) from None


def _new_peer() -> int:
    """Return a random peer id from the kernel: children share the state of a forked generator."""
    return secrets.randbits(63)


def added(replica: Replica, before: bytes) -> bytes | None:
    """Return the changes since that version as an update; None if there are none."""
    return None if replica.version().vector == before else replica.updates_since(before)


def no_version(frontiers: bytes) -> Refused:
    """Return the refusal for a version that the document does not have."""
    return Refused(Reason.UNKNOWN_VERSION, unknown_version(show_version(frontiers)))


def without_later_roots(value: object) -> object:
    """Leave out empty roots: Loro shows a root that was created later as an empty one."""
    assert isinstance(value, dict)
    return {name: root for name, root in value.items() if root not in ("", [], {})}

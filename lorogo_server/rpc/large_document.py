"""What calls do on a large document, in a child process: each would take long on the event loop.

`Host.needs_child` says which calls are. The child has a copy of the document to itself, so it edits and
checks out that copy without forking it, under a peer id of its own.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from lorogo_protocol import calls, reasons
from lorogo_protocol.calls import Refused
from lorogo_protocol.crdt import CrdtPanic, Replica, Version
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.limits import PATCH_WORK_MAX
from lorogo_protocol.reasons import Reason
from lorogo_protocol.shown_version import show_version, unknown_version
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
    """A snapshot of a document, and where the document stood then."""

    data: bytes
    version: Version
    sequence: int


class _Exported(Exception):
    """The snapshot is here already."""

    def __init__(self, data: bytes) -> None:
        self.data = data


async def run(
    host: Host,
    work: Callable[[Replica], Work],
    *,
    call: Call | None = None,
    exports: bool = False,
) -> bytes:
    """Return what the work returns in a child. `work` gets the document right before the fork.

    The document has one generation from the call to the answer, and is not loaded again after the fork.
    Raises Refused otherwise, as `require_readable` does.
    """
    size, loaded, generation = host.size, host.loaded, host.loaded.facts.generation

    def check() -> None:
        require_readable(host)
        if host.loaded.facts.generation != generation:
            raise Refused(Reason.BUSY, "the document was deleted and restored meanwhile; ask again")

    def begin() -> Work:
        nonlocal size, loaded
        check()
        size, loaded = host.size, host.loaded
        return work(loaded.intake.replica)

    done, seconds = await host.context.children.run(host.document_id, begin, exports=exports)
    if call is not None:
        host.costs.took(call, size, seconds)
    check()
    if host.loaded is not loaded:  # what the child had in memory was in doubt
        raise Refused(Reason.BUSY, "the document was loaded again meanwhile; ask again")
    return done


def require_readable(host: Host, *, deleted: bool = False) -> None:
    """Raise Refused unless this server owns the document, and memory holds what is stored.

    `deleted`: the document may also be a deleted one.
    """
    if not (host.is_up and host.lease.valid()):
        raise Refused(Reason.NOT_OWNER, "this server is not sure to own the document now; ask again")
    if not host.is_settled:
        raise Refused(Reason.BUSY, "the document is being loaded again; ask once more")
    if host.loaded.intake.deleted and not deleted:
        erased = host.loaded.facts.erased_ns
        raise Refused(Reason.DELETED, reasons.ERASED if erased else reasons.DELETED)


async def _shared(
    host: Host, key: tuple[object, ...], start: Callable[[], Coroutine[None, None, bytes]]
) -> bytes:
    """Return what the same call returns that is under way, or start it.

    A client asks again after some silence; a second child would make it wait from the beginning.
    """
    task = host.shared_calls.get(key)
    if task is None:
        task = host.shared_calls[key] = asyncio.ensure_future(start())

        def ended(done: "asyncio.Future[bytes]") -> None:
            host.shared_calls.pop(key, None)
            if not done.cancelled():
                done.exception()  # every caller may have gone

        task.add_done_callback(ended)
    return await asyncio.shield(task)


@contextmanager
def measured(host: Host, call: Call) -> Iterator[None]:
    """Measure a call that the loop or a thread makes."""
    size, began = host.size, host.context.clock.now()
    yield
    host.costs.took(call, size, host.context.clock.now() - began)


async def export(host: Host) -> Export:
    """A snapshot of the document as it is now, of any size; many newcomers at once share one."""
    intake, visitors = host.loaded.intake, host.visitors
    known = visitors.exported(intake.replica.version().vector)
    if known is None and not host.needs_child(Call.EXPORT):
        with measured(host, Call.EXPORT):
            known = visitors.snapshot_of(intake.replica)
    if known is not None:
        return Export(known, intake.replica.version(), intake.head)
    stands = intake.replica.version(), intake.head

    def begin(replica: Replica) -> Work:
        nonlocal stands
        stands = replica.version(), host.loaded.intake.head
        if (known := visitors.exported(stands[0].vector)) is not None:
            raise _Exported(known)
        return replica.snapshot

    try:
        data = await run(host, begin, call=Call.EXPORT, exports=True)
    except _Exported as found:
        data = found.data
    else:
        visitors.keep_exported(stands[0].vector, data)
    return Export(data, *stands)


async def export_at(host: Host, wanted: bytes) -> tuple[bytes, bytes]:
    """A snapshot whose content is that of the wanted version, and its heads."""
    packed = await _shared(
        host, ("export", wanted), lambda: run(host, lambda replica: partial(_content_at, replica, wanted))
    )
    facts = calls.decode(packed)
    return calls.need(facts, "payload", bytes), calls.need(facts, "frontiers", bytes)


async def updates_since(host: Host, vector: bytes) -> tuple[bytes, Version, int]:
    """What the document has and the vector has not, and where the document stands with it."""
    stands = host.loaded.intake.replica.version(), host.loaded.intake.head

    def begin(replica: Replica) -> Work:
        nonlocal stands
        if not replica.can_serve_since(vector):
            raise Refused(Reason.BUSY, "the history that it needs was trimmed meanwhile; ask again")
        stands = replica.version(), host.loaded.intake.head
        return partial(replica.updates_since, vector)

    return await run(host, begin, exports=True), *stands


async def read(host: Host, wanted: bytes | None, paths: Sequence[str] | None) -> calls.Body:
    """The answer to `get`, packed by the child."""
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
    """The update that brings the content of the wanted version back; None if it changes nothing."""
    return await run(host, lambda replica: partial(_reverted, replica, wanted)) or None


async def patch(host: Host, operations: list[object], check: Callable[[], None]) -> bytes | None:
    """The update that the patch makes; None if it changes nothing. `check` is called before the fork."""

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
        doc = replica.settled() if wanted is None else replica.doc  # to settle it would leave the version
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
    replica.settled()  # a panic here is over the document, one below over an old version of this copy
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
    """From the kernel: children would draw the same numbers from a generator that the fork copied."""
    return secrets.randbits(63)


def added(replica: Replica, before: bytes) -> bytes | None:
    """What the replica has more than that version, as an update; None if it has no more."""
    return None if replica.version().vector == before else replica.updates_since(before)


def no_version(frontiers: bytes) -> Refused:
    """The refusal of a version that the document does not have."""
    return Refused(Reason.UNKNOWN_VERSION, unknown_version(show_version(frontiers)))


def without_later_roots(value: object) -> object:
    """Loro shows a root that was made later as an empty one: leave those out."""
    assert isinstance(value, dict)
    return {name: root for name, root in value.items() if root not in ("", [], {})}

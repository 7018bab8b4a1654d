"""Executes the work of calls on a document: short work on the event loop, long work in a child process.

The loop gives a call `LOOP_WORK_MAX` units, on a document on which calls of its kind are short
(`Host.needs_child`). If these do not suffice, a child begins the work again on its own copy of the document.
Work that edits or checks out gets a private copy: a fork of the document on the loop; the child's whole
memory is one.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lorogo_protocol.limits import LOOP_WORK_MAX, PATCH_WORK_MAX
from lorogo_protocol.loro.crdt import Replica, Version
from lorogo_protocol.messages import reasons
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.document.host import Host
from lorogo_server.sandbox.call_costs import Call
from lorogo_server.sandbox.child_process import ChildKind
from lorogo_server.sandbox.work_meter import OverBudget, Spend, WorkMeter, unmetered

PATCH_TOO_LARGE = "the patch as a whole reads or writes too much; send it as several patches"

Task = Callable[[Replica, Spend], bytes]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Export:
    """A snapshot of a document, its version and its last WAL sequence."""

    data: bytes
    version: Version
    sequence: int


def _nothing() -> None:
    pass


async def execute(
    host: Host,
    task: Task,
    *,
    call: Call | None = None,
    private: bool = False,
    check: Callable[[], None] = _nothing,
) -> bytes:
    """Return what the task returns. `check` is called right before the task, and may refuse it.

    `private`: the task edits its copy of the document, or checks out a version.
    """
    if not host.needs_child(call):
        async with host.context.call_turn:  # one call between two turns of the loop
            try:
                require_readable(host)  # the document may have changed since the call began to wait
                check()
                replica = host.loaded.intake.replica
                size, began = host.size, host.context.clock.now()
                done = task(replica.fork() if private else replica, WorkMeter(LOOP_WORK_MAX).spend)
                if call is not None:
                    host.costs.took(call, size, host.context.clock.now() - began)
                return done
            except OverBudget:
                pass
            finally:
                await asyncio.sleep(0)
    return await in_child(host, partial(_alone, task) if private else task, call=call, check=check)


async def in_child(
    host: Host,
    task: Task,
    *,
    call: Call | None = None,
    kind: ChildKind = ChildKind.CALL,
    check: Callable[[], None] = _nothing,
) -> bytes:
    """Return what the task returns in a child. `check` is called right before the fork.

    Raises Refused if the generation changes during the call, if the document is loaded again after the
    fork, or as `require_readable` does.
    """
    size, loaded, generation = host.size, host.loaded, host.loaded.facts.generation

    def current() -> None:
        require_readable(host)
        if host.loaded.facts.generation != generation:
            raise Refused(Reason.BUSY, "the document was deleted and restored meanwhile; retry")

    def begin() -> Callable[[], bytes]:
        nonlocal size, loaded
        current()
        check()
        size, loaded = host.size, host.loaded
        spend = WorkMeter(PATCH_WORK_MAX).spend if call is Call.PATCH else unmetered
        return partial(task, loaded.intake.replica, spend)

    done, seconds = await host.context.children.run(host.document_id, begin, kind)
    if call is not None:
        host.costs.took(call, size, seconds)
    current()
    if host.loaded is not loaded:  # the child's copy may have been damaged
        raise Refused(Reason.BUSY, "the document was loaded again meanwhile; retry")
    return done


def _alone(task: Task, replica: Replica, spend: Spend) -> bytes:
    """Run a task that edits in a child, under a peer id from the kernel: forks share their generator."""
    replica.write_as(secrets.randbits(63))
    try:
        return task(replica, spend)
    except OverBudget:
        raise Refused(Reason.PATCH_FAILED, PATCH_TOO_LARGE) from None


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


async def shared(host: Host, key: tuple[object, ...], start: Callable[[], Coroutine[None, None, T]]) -> T:
    """Join an identical call under way, or start it.

    A client repeats a call after a timeout; a second child would start the work over.
    """
    task = host.shared_calls.get(key)
    if task is None:
        task = host.shared_calls[key] = asyncio.ensure_future(start())

        def ended(done: "asyncio.Future[T]") -> None:
            host.shared_calls.pop(key, None)
            if not done.cancelled():
                done.exception()  # retrieve it: every caller may have given up

        task.add_done_callback(ended)
    return await asyncio.shield(task)


async def export(host: Host) -> Export:
    """Return a current snapshot of the document; concurrent syncs share one export."""
    version, sequence = _as_of(host)
    if (known := host.endpoint.exported(version.vector)) is not None:
        return Export(known, version, sequence)
    if host.needs_child(Call.EXPORT):
        return await shared(host, ("export", version.vector), partial(_export_in_child, host))
    size, began = host.size, host.context.clock.now()
    data = host.loaded.intake.replica.snapshot()
    host.costs.took(Call.EXPORT, size, host.context.clock.now() - began)
    return _kept(host, Export(data, version, sequence))


async def _export_in_child(host: Host) -> Export:
    as_of: list[tuple[Version, int]] = []
    data = await in_child(
        host,
        lambda replica, _: replica.snapshot(),
        call=Call.EXPORT,
        kind=ChildKind.EXPORT,
        check=lambda: as_of.append(_as_of(host)),
    )
    return _kept(host, Export(data, *as_of[0]))


def _kept(host: Host, exported: Export) -> Export:
    host.endpoint.keep_exported(exported.version.vector, exported.data)
    return exported


async def updates_since(host: Host, vector: bytes) -> tuple[bytes, Version, int]:
    """Return the many updates missing in the vector, and the version and WAL sequence that they lead to."""
    as_of: list[tuple[Version, int]] = []

    def check() -> None:
        if not host.loaded.intake.replica.can_serve_since(vector):
            raise Refused(Reason.BUSY, "the history that the client needs was trimmed meanwhile; retry")
        as_of.append(_as_of(host))

    def updates(replica: Replica, _: Spend) -> bytes:
        return replica.updates_since(vector)

    return await in_child(host, updates, kind=ChildKind.EXPORT, check=check), *as_of[0]


def _as_of(host: Host) -> tuple[Version, int]:
    intake = host.loaded.intake
    return intake.replica.version(), intake.head.sequence

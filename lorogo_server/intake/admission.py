"""Admits one WAL message to a document: the sandbox decodes it, then it is imported and settled in steps.

    take ─▶ sandbox decodes it ─▶ import into the history ─▶ state, in steps ─▶ effects
                               └▶ a slow merge: a child tries it ─▶ its document replaces ours ─▶ effects

The event loop runs other documents while another process works, and between two steps. This document
waits: its host holds `busy`, and calls wait for that (`methods.answer`).
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial

from lorogo_protocol.errors import CrdtError, TooFarBehind, TooLong
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, UnclearPanic
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.reasons import Reason
from lorogo_server.intake.decisions import (
    Accepted,
    Candidate,
    Effect,
    Unmerged,
    Unvalidated,
    poisoned,
)
from lorogo_server.intake.intake import (
    Intake,
)
from lorogo_server.sandbox.child_process import MERGE_SECONDS
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate
from lorogo_transport.clock import Clock
from lorogo_transport.ports import StoredMessage
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TURN_SECONDS = 0.01  # of work on early updates, before other tasks run
_ADOPTED_SECONDS = 0.2  # CPU of the first edits and read of an adopted document
_BEHIND = (
    "the document changed much since the update's version, and merging it takes too long; sync, then make the"
    " change again"
)
_LONG = (
    f"importing the update takes more than {MERGE_SECONDS} s of CPU; split the change into smaller commits"
)


async def admit(
    intake: Intake,
    stored: StoredMessage,
    now: float,
    *,
    validate: ValidateUpdate,
    accepted: bool = False,
    validated: bool = False,
) -> list[Effect]:
    """Process a WAL message and return its effects. The host makes one call at a time.

    `accepted`: a journal has the update that ends with this message, so only proof of forgery refuses it.
    `validated`: the sandbox has already decoded the data of this message without a crash.
    Raises CrdtPanic if Loro panics and the cause may be an earlier update: load the document again, checked.
    """
    try:
        effects = intake.take(stored, now, accepted=accepted, validated=validated)
        if isinstance(effects, Unvalidated):
            problem = await _problem(effects.candidate, validate)
            effects = intake.validated(effects, problem, now)
        if isinstance(effects, Unmerged):
            effects = await _merged(intake, effects, now)
        return await _settled(intake, effects) if intake.replica.is_due else effects
    finally:
        intake.settled()


async def admit_early(intake: Intake, clock: Clock) -> AsyncIterator[tuple[Effect, int]]:
    """Apply the early updates whose dependencies a read has brought; refuse the rest, which stays in the WAL.

    Yields each effect with the time of its message. After Poisoned the caller must not go on.
    Raises CrdtPanic as `admit` does.
    """
    turn_ends = clock.now() + _TURN_SECONDS
    for early in intake.ready_again():
        if (now := clock.now()) >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = clock.now() + _TURN_SECONDS
        if early is None:
            continue
        try:
            effects = intake.retry(early, now)
            if isinstance(effects, Unmerged):
                effects = await _merged(intake, effects, now)
            if intake.replica.is_due:
                effects = await _settled(intake, effects)
        finally:
            intake.settled()
        for effect in effects:
            yield effect, early.candidate.time_ns
    if not intake.needs_another_read:
        for effect, time_ns in intake.left_over():
            yield effect, time_ns


async def _problem(one: Candidate, validate: ValidateUpdate) -> CrdtError | None:
    try:
        await validate(one.update.payload, accepted=one.accepted, bounded=one.bounded)
    except CrdtError as error:
        return error
    return None


async def _merged(intake: Intake, unmerged: Unmerged, now: float) -> list[Effect]:
    """Import an update in a child, whose document replaces ours; refuse a new one that takes too long."""
    assert intake.merge is not None
    outcome: bytes | CrdtError | None = None
    candidate = unmerged.candidate
    update, bounded = candidate.update, candidate.bounded
    work = _tried if bounded else _imported
    try:
        outcome, seconds = await intake.merge(partial(work, intake.replica, update.payload), bounded=bounded)
        intake.merge_seconds += seconds
    except CrdtPanic as error:
        if not intake.replica.lazy:  # a checked load has tried every earlier update
            return [poisoned(update, error)]
        raise UnclearPanic(str(error)) from None  # perhaps an earlier update: only such a load finds it
    except Refused as no:
        log.warning("no child imported a slow update", log_id=update.log_id, problem=str(no))
        if no.reason is Reason.TOO_LARGE and bounded:
            outcome = TooFarBehind(_BEHIND) if unmerged.behind else TooLong(_LONG)
    return intake.merged(unmerged, outcome, now)


def _imported(replica: Replica, payload: bytes) -> bytes:
    copy = Replica.from_snapshot(replica.snapshot(), lazy=True)  # joins edits that were imported one by one
    copy.apply(payload, settle=False)
    return copy.snapshot()


def _tried(replica: Replica, payload: bytes) -> bytes:
    """Import the update; refuse it if edits of the adopted document would take long: Loro decodes it then."""
    snapshot = _imported(replica, payload)
    copies = Replica.from_snapshot(snapshot), Replica.from_snapshot(snapshot)
    edits = [copy.edited_roots(secrets.randbits(63)) for copy in copies]  # concurrent
    began = time.thread_time()
    adopted = Replica.from_snapshot(snapshot, lazy=True)
    for edit in edits:
        adopted.apply(edit)
    adopted.value()
    if time.thread_time() - began > _ADOPTED_SECONDS:
        raise Refused(Reason.TOO_LARGE, "edits of the document would take long")
    return snapshot


async def _settled(intake: Intake, effects: list[Effect]) -> list[Effect]:
    """Compute the state in steps and return the effects; refuse the last new update if Loro panics."""
    try:
        with contextlib.closing(intake.replica.settling()) as settling:
            await asyncio.sleep(0)  # the import took its time
            for _ in settling:
                await asyncio.sleep(0)
    except UnclearPanic:
        raise  # the cause may be another update
    except CrdtPanic as error:
        added = [place for place, one in enumerate(effects) if isinstance(one, Accepted) and one.new]
        if not added:
            raise  # another update is the cause; a checked load finds it
        last = added[-1]
        culprit = effects[last]
        assert isinstance(culprit, Accepted)
        return [*effects[:last], poisoned(culprit.update, error)]
    return effects

"""Admits one WAL message to a document: the sandbox decodes it, then it is imported and settled in steps.

    take ─▶ sandbox decodes it ─▶ import into the history ─▶ state, in steps ─▶ effects
                               └▶ a slow merge: a child tries it ─▶ its document replaces ours ─▶ effects

The event loop runs other documents while another process works, and between two steps. This document
waits: its host holds `busy`, and calls wait for that (`methods.answer`).
"""

import asyncio
import contextlib
from functools import partial

from lorogo_protocol.errors import CrdtError, TooFarBehind, TooLong
from lorogo_protocol.loro.crdt import CrdtPanic, Replica, UnclearPanic
from lorogo_protocol.messages.calls import Refused
from lorogo_server.document.intake import Accepted, Effect, Intake, Unmerged, Unvalidated, poisoned
from lorogo_server.sandbox.child_process import MERGE_SECONDS
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate
from lorogo_transport.ports import StoredMessage
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_BEHIND = (
    f"the document changed much since the update's version: merging it takes more than {MERGE_SECONDS} s of"
    " CPU, or the server is busy with others; sync, then make the change again"
)
_LONG = (
    f"importing the update takes more than {MERGE_SECONDS} s of CPU, or the server is busy with others;"
    " split the change into smaller commits"
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
            problem = await _problem(effects, validate)
            effects = intake.validated(effects, problem, now)
        if isinstance(effects, Unmerged):
            effects = await _merged(intake, effects, now)
        while (waiting := intake.next_unmerged()) is not None:
            effects += await _merged(intake, waiting, now)
        return await _settled(intake, effects) if intake.replica.is_due else effects
    finally:
        intake.settled()


async def _problem(waiting: Unvalidated, validate: ValidateUpdate) -> CrdtError | None:
    try:
        await validate(waiting.update.payload, accepted=waiting.accepted, bounded=waiting.bounded)
    except CrdtError as error:
        return error
    return None


async def _merged(intake: Intake, waiting: Unmerged, now: float) -> list[Effect]:
    """Import an update in a child, whose document replaces ours; refuse a new one if that fails."""
    assert intake.merge is not None
    outcome: bytes | CrdtError | None = None
    try:
        work = partial(_with_update, intake.replica, waiting.update.payload)
        outcome = await intake.merge(work, bounded=waiting.bounded)
    except CrdtPanic as error:
        return [poisoned(waiting.update, error)]
    except Refused as no:
        log.warning("no child imported a slow update", log_id=waiting.update.log_id, problem=str(no))
        if waiting.bounded:
            outcome = TooFarBehind(_BEHIND) if waiting.behind else TooLong(_LONG)
    return intake.merged(waiting, outcome, now)


def _with_update(replica: Replica, payload: bytes) -> bytes:
    replica.apply(payload, settle=False)
    return replica.snapshot()


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

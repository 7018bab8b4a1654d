"""One WAL message on its way into a document: validated by the sandbox, imported, settled in steps.

    take ─▶ sandbox decodes it ─▶ import into the history ─▶ state, in steps ─▶ effects

The event loop runs other documents while the sandbox decodes, and between two steps. This document
waits: its host holds `busy`, and calls wait for that (`methods.answer`).
"""

import asyncio
import contextlib

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro.crdt import CrdtPanic, UnclearPanic
from lorogo_server.document.intake import Accepted, Effect, Intake, Unvalidated, poisoned
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate
from lorogo_transport.ports import StoredMessage


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
        return await _settled(intake, effects) if intake.replica.is_due else effects
    finally:
        intake.settled()


async def _problem(waiting: Unvalidated, validate: ValidateUpdate) -> CrdtError | None:
    try:
        await validate(waiting.update.payload, accepted=waiting.accepted, bounded=waiting.bounded)
    except CrdtError as error:
        return error
    return None


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
        return [*effects[:last], poisoned(culprit, error)]
    return effects

"""One WAL message on its way into a document: validated by the sandbox, imported, settled in steps.

    take ─▶ sandbox decodes it ─▶ import into the history ─▶ state, in steps ─▶ effects

The event loop runs other documents while the sandbox decodes, and between two steps. This document
waits: its host holds `busy`, and calls wait for that (`methods.answer`).
"""

import asyncio
import contextlib

from lorogo_protocol.crdt import CrdtPanic, UnclearPanic
from lorogo_protocol.errors import CrdtError
from lorogo_server.document.intake import Accepted, Effect, Intake, Unvalidated, poisoned
from lorogo_server.sandbox.decode_sandbox import ValidateUpdate
from lorogo_transport.ports import StoredMessage


async def admit(
    intake: Intake,
    stored: StoredMessage,
    now: float,
    *,
    taste: ValidateUpdate,
    accepted: bool = False,
    tasted: bool = False,
) -> list[Effect]:
    """Take a message, and return what follows from it. The owner of the document calls it once at a time.

    `accepted`: a journal has the update that ends with it. Then a suspicion does not count against it.
    `tasted`: the sandbox has decoded this message's data already, and nothing happened.
    Raises CrdtPanic if Loro panics over an update that may be another one: load the document again, checked.
    """
    try:
        effects = intake.take(stored, now, accepted=accepted, tasted=tasted)
        if isinstance(effects, Unvalidated):
            problem = await _problem(effects, taste)
            effects = intake.validated(effects, problem, now)
        return await _settled(intake, effects) if intake.replica.is_due else effects
    finally:
        intake.settled()


async def _problem(waiting: Unvalidated, taste: ValidateUpdate) -> CrdtError | None:
    try:
        await taste(waiting.update.payload, accepted=waiting.accepted, bounded=waiting.bounded)
    except CrdtError as error:
        return error
    return None


async def _settled(intake: Intake, effects: list[Effect]) -> list[Effect]:
    """The effects, when the state is worked out; if Loro panics over the last new update, it is refused."""
    try:
        with contextlib.closing(intake.replica.settling()) as settling:
            await asyncio.sleep(0)  # the import took its time
            for _ in settling:
                await asyncio.sleep(0)
    except UnclearPanic:
        raise  # to refuse this update would blame it for another
    except CrdtPanic as error:
        added = [place for place, one in enumerate(effects) if isinstance(one, Accepted) and one.new]
        if not added:
            raise  # another update is the culprit: a checked load finds it
        last = added[-1]
        culprit = effects[last]
        assert isinstance(culprit, Accepted)
        return [*effects[:last], poisoned(culprit, error)]
    return effects

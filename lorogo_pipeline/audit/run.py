"""Every document of the journals against the live system, in rounds, a few in memory at once.

    round 0     each replayed document, and then each that only the server knows: look and compare
    round 1..   those that differ once more: journals read again (`again`), then the server

Somebody may edit, delete or restore a document between the reading of the journals and the look at
the server. What differs for that reason is gone in the next round: by then the journals have what the
server had before. What stays is a difference.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from lorogo_pipeline.audit.audit_report import AuditReport, Skipped
from lorogo_pipeline.audit.comparison import AHEAD, Comparison, Ends, JournalDocument, judge
from lorogo_pipeline.audit.difference import Difference
from lorogo_pipeline.audit.live_documents import LiveDocumentReader, LiveReadFailed, Progress
from lorogo_pipeline.spark.concurrent_map import as_async, concurrent_map
from lorogo_protocol.errors import CrdtError, InvalidDocumentId
from lorogo_transport.clock import Clock, SystemClock

ROUND_PAUSES = (0.2, 1.0, 3.0)  # an update is served a moment before it is in the journal

Again = Callable[
    [str], Awaitable[JournalDocument | None]
]  # the document as the journals have it now; None: not at all


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What is known of one document so far."""

    document_id: str
    verdict: Comparison
    before: Ends | None  # what the server had when it was first looked at
    ahead: bool = False  # it had more than the journals, then or later
    where: str = ""
    failed: str = ""  # it could not be looked at


async def audit(
    replayed: Iterable[JournalDocument],
    live: LiveDocumentReader,
    *,
    again: Again | None,
    damaged: Iterable[Difference] = (),
    only: Callable[[str], bool] | None = None,
    on_progress: Progress = lambda *_: None,
    pauses: Iterable[float] = ROUND_PAUSES,
    clock: Clock | None = None,
) -> AuditReport:
    """Compare everything. Raises Disconnected if NATS goes away and stays so.

    `replayed` is read in a thread, as it is needed. Without `again` the journals are as old as they
    are: what the server has beyond them is counted as `ahead`, and is no difference. `damaged` are
    differences that are not of one document; `only` limits what is asked of the server's own list.
    """
    clock = clock or SystemClock()
    began = clock.now()
    run = _Run(live, again, on_progress)
    seen: set[str] = set()
    await run.compare_journals(_remembering(replayed, seen))
    server_only = {
        name for name in await live.documents() if name not in seen and (only is None or only(name))
    }
    run.total = len(seen) + len(server_only)
    await run.compare_server_only(sorted(server_only))
    for pause in pauses if again is not None else ():
        if not run.doubtful:
            break
        await asyncio.sleep(pause)
        await run.compare_again()
    return run.report(damaged, clock.now() - began)


class _Run:
    """The tally of one audit."""

    def __init__(self, live: LiveDocumentReader, again: Again | None, on_progress: Progress) -> None:
        self._live = live
        self._again = again
        self._on_progress = on_progress
        self._equal = 0
        self._ahead = 0
        self._asked = 0
        self._done = 0
        self.total = 0
        self._settled: list[_Outcome] = []  # that differ, whatever is read again
        self.doubtful: dict[str, _Outcome] = {}

    async def compare_journals(self, replayed: Iterator[JournalDocument]) -> None:
        """Every document that the journals have."""
        async for outcome in concurrent_map(_in_thread(replayed), self._compare, self._live.settings.at_once):
            self._take(outcome, "comparing documents")

    async def compare_server_only(self, names: list[str]) -> None:
        """Every document that only the server has."""
        async for outcome in concurrent_map(
            as_async(names), self._compare_server_only, self._live.settings.at_once
        ):
            self._take(outcome, "comparing documents")

    async def compare_again(self) -> None:
        """What is in doubt, journals first."""
        waiting = list(self.doubtful.values())
        self.doubtful.clear()
        self._done, self.total = 0, len(waiting)
        async for outcome in concurrent_map(
            as_async(waiting), self._compare_again, self._live.settings.at_once
        ):
            self._take(outcome, "reading again what differs")

    def report(self, damaged: Iterable[Difference], seconds: float) -> AuditReport:
        """The sum."""
        differences = list(damaged)
        skipped = []
        equal, ahead = self._equal, self._ahead
        for outcome in [*self._settled, *self.doubtful.values()]:
            found = [
                one for one in outcome.verdict.differences if self._again is not None or one.kind not in AHEAD
            ]
            differences += found
            ahead += outcome.ahead
            if outcome.failed or outcome.verdict.uncompared:
                skipped.append(Skipped(outcome.document_id, outcome.failed or outcome.verdict.uncompared))
            elif not found:
                equal += 1
        documents = self._equal + len(self._settled) + len(self.doubtful)
        return AuditReport(
            documents,
            equal,
            ahead,
            self._asked,
            tuple(sorted(differences)),
            tuple(sorted(skipped)),
            seconds,
        )

    def _take(self, outcome: _Outcome, doing: str) -> None:
        verdict = outcome.verdict
        if outcome.failed or verdict.passing:
            self.doubtful[outcome.document_id] = outcome
        elif verdict.differences:
            self._settled.append(outcome)
        else:
            self._equal += 1
            self._ahead += outcome.ahead
        if outcome.where == "server":
            self._asked += 1
        self._done += 1
        self._on_progress(doing, self._done, max(self.total, self._done))

    # --- one document -----------------------------------------------------------------------------

    async def _compare(self, replayed: JournalDocument) -> _Outcome:
        return await self._outcome(replayed.document_id, replayed, None)

    async def _compare_server_only(self, document_id: str) -> _Outcome:
        return await self._outcome(document_id, None, None)

    async def _compare_again(self, outcome: _Outcome) -> _Outcome:
        assert self._again is not None
        replayed = await self._again(outcome.document_id)
        judged = await self._outcome(outcome.document_id, replayed, outcome.before)
        return replace(judged, where="", ahead=judged.ahead or outcome.ahead)  # asked: counted already

    async def _outcome(
        self, document_id: str, replayed: JournalDocument | None, before: Ends | None
    ) -> _Outcome:
        try:
            seen = await self._live.read(document_id)
            verdict = judge(replayed, seen, before=before)
            had = seen.ends if before is None else before
        except (LiveReadFailed, InvalidDocumentId, CrdtError) as error:
            return _Outcome(document_id, Comparison(), before, failed=str(error))
        return _Outcome(document_id, verdict, had, verdict.ahead, seen.where)


def _remembering(replayed: Iterable[JournalDocument], seen: set[str]) -> Iterator[JournalDocument]:
    """Each document once, noting its name."""
    for one in replayed:
        if one.document_id not in seen:
            seen.add(one.document_id)
            yield one


async def _in_thread(items: Iterator[JournalDocument]) -> AsyncIterator[JournalDocument]:
    """The same, read beside the loop: the next row may have to come from a cluster."""
    while (one := await asyncio.to_thread(next, items, None)) is not None:
        yield one

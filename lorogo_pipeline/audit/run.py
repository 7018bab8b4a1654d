"""Compare every document of the journals with the live system, in rounds, a few in memory at once.

    round 0     every replayed document, then every document that only the server has
    round 1..   differing documents again: read the journals again (`again`), then the server

A document may change between the read of the journals and the read of the server. Such a difference is gone
in the next round: the journals then have what the server had before. Remaining differences are real.
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

ROUND_PAUSES = (0.2, 1.0, 3.0)  # an update is served shortly before it is in the journal

Again = Callable[
    [str], Awaitable[JournalDocument | None]
]  # replay one document again; None: not in the journals


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result for one document so far."""

    document_id: str
    verdict: Comparison
    before: Ends | None  # what the server had at its first read
    ahead: bool = False  # it had updates beyond the journals at any time
    where: str = ""
    failed: str = ""  # why it could not be read


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
    """Compare all documents. Raises Disconnected if NATS stays unreachable.

    A thread reads `replayed` on demand. Without `again` the journals are not read again: updates of the
    server beyond them count as `ahead`, not as a difference. `damaged` are differences that are not about
    one document; `only` filters the documents of the server.
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
    """The state of one audit."""

    def __init__(self, live: LiveDocumentReader, again: Again | None, on_progress: Progress) -> None:
        self._live = live
        self._again = again
        self._on_progress = on_progress
        self._equal = 0
        self._ahead = 0
        self._asked = 0
        self._done = 0
        self.total = 0
        self._settled: list[_Outcome] = []  # with differences that a repetition cannot explain
        self.doubtful: dict[str, _Outcome] = {}

    async def compare_journals(self, replayed: Iterator[JournalDocument]) -> None:
        """Compare every document of the journals."""
        async for outcome in concurrent_map(_in_thread(replayed), self._compare, self._live.settings.at_once):
            self._take(outcome, "comparing documents")

    async def compare_server_only(self, names: list[str]) -> None:
        """Compare every document that only the server has."""
        async for outcome in concurrent_map(
            as_async(names), self._compare_server_only, self._live.settings.at_once
        ):
            self._take(outcome, "comparing documents")

    async def compare_again(self) -> None:
        """Compare doubtful documents again, journals first."""
        waiting = list(self.doubtful.values())
        self.doubtful.clear()
        self._done, self.total = 0, len(waiting)
        async for outcome in concurrent_map(
            as_async(waiting), self._compare_again, self._live.settings.at_once
        ):
            self._take(outcome, "comparing again")

    def report(self, damaged: Iterable[Difference], seconds: float) -> AuditReport:
        """Return the report."""
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
        return replace(judged, where="", ahead=judged.ahead or outcome.ahead)  # `asked` counted it already

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
    """Yield each document once and record its id."""
    for one in replayed:
        if one.document_id not in seen:
            seen.add(one.document_id)
            yield one


async def _in_thread(items: Iterator[JournalDocument]) -> AsyncIterator[JournalDocument]:
    """Iterate in a thread: the next row may come from a cluster."""
    while (one := await asyncio.to_thread(next, items, None)) is not None:
        yield one

"""The verdict of a fault run, from the writers' events and the final documents. Pure.

- *lost*: a mark that a writer recorded as ACKed, and that the final document lacks.
- *forgotten*: a mark that a writer's local store confirmed, and that is missing although the store
  was emptied.
- Each edit counts once: ACKed (also if it is lost), not recorded as ACKed but present, never ACKed and
  missing, forgotten, or unknown (its document was not read, or its local store not emptied).
- *duplicated*: a mark that is in the final document more than once.
- *takeover*: the time from the fault of a server to the first ACK of a later edit, for each document that the
  server owned and that a writer edited within a second of the fault.
- *unavailable*: the time for which a document had an unACKed edit and got no ACK.
- *recovery*: the time from the end of a fault until every edit written before it ended was ACKed, and every
  writer had one more ACK.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lorogo_chaos.fleet.event_log import WriterRun

_EDITED_WITHIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FinalContents:
    """The content of a document at the end, read by a new client."""

    marks: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault, from its injection to the recovery."""

    name: str
    words: str
    injected_at: float
    ended_at: float  # healed
    recovered_at: float | None  # None: not within the time limit
    owned: tuple[str, ...] = ()  # documents of the affected server, which other servers must take over
    effective: bool = True  # False: it had no effect

    @property
    def recovery_seconds(self) -> float | None:
        return None if self.recovered_at is None else max(0.0, self.recovered_at - self.ended_at)


@dataclass(frozen=True, slots=True)
class MissingEdit:
    """A promised edit that is missing."""

    document: str
    mark: str
    promised_at: float


@dataclass(frozen=True, slots=True)
class AckGap:
    """The longest time for which a document had an unACKed edit and got no ACK."""

    seconds: float = 0.0
    document: str = ""
    began_at: float = 0.0


@dataclass
class FaultRunVerdict:
    """The counts and times of a fault run."""

    edits: int = 0
    acked: int = 0
    lost: list[MissingEdit] = field(default_factory=list)
    forgotten: list[MissingEdit] = field(default_factory=list)
    duplicated: dict[str, list[str]] = field(default_factory=dict)  # marks by document
    unknown: int = 0  # edits never ACKed and missing: their writer was killed
    unrecorded: int = 0  # edits that are present, whose writer died before it recorded the ACK
    not_known: int = 0  # edits not ACKed, with an unknown outcome
    unread: list[str] = field(default_factory=list)  # documents that could not be read at the end
    differing: list[str] = field(default_factory=list)  # documents whose replicas did not become equal
    undrained: list[int] = field(default_factory=list)  # writers with unACKed edits at the end
    takeovers_of: list[list[float]] = field(default_factory=list)  # for each fault, in order
    recoveries: list[float] = field(default_factory=list)
    unrecovered: int = 0  # faults after which not every edit was ACKed in time
    silence: AckGap = AckGap()
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def takeovers(self) -> list[float]:
        return [seconds for some in self.takeovers_of for seconds in some]

    @property
    def verified(self) -> bool:
        """True if every document could be compared with the recorded events."""
        return not self.unread and not self.undrained and not self.differing

    @property
    def good(self) -> bool:
        """True if no promised edit is lost, and that is verified."""
        return self.verified and not self.lost and not self.forgotten


def judge(
    incarnations: Sequence[WriterRun],
    finals: Mapping[str, FinalContents | None],
    faults: Sequence[FaultRecord] = (),
    *,
    undrained: Sequence[int] = (),
) -> FaultRunVerdict:
    """Return the verdict. `finals`: every document, None if it could not be read."""
    verdict = FaultRunVerdict(undrained=sorted(undrained))
    edited = {
        event.document
        for incarnation in incarnations
        for event in incarnation.events
        if event.kind == "wrote"
    }
    verdict.unread = sorted(document for document in edited | finals.keys() if finals.get(document) is None)
    there = {document: Counter(final.marks) for document, final in finals.items() if final is not None}
    for document, marks in sorted(there.items()):
        twice = sorted(mark for mark, count in marks.items() if count > 1)
        if twice:
            verdict.duplicated[document] = twice
    for incarnation in incarnations:
        promises = promised(incarnation)
        verdict.edits += promises.edits
        verdict.acked += sum(map(len, promises.acked.values()))
        verdict.lost += _missing(incarnation, promises.acked, there)
        emptied = (
            incarnation.stored and incarnation.writer not in verdict.undrained
        )  # by its last incarnation
        if emptied:
            verdict.forgotten += _missing(incarnation, promises.stored_only, there)
        _count_unacked(verdict, incarnation, promises, there, emptied=emptied)
    verdict.differing = _differing(incarnations, finals)
    verdict.faults = Counter(fault.name for fault in faults)
    for fault in faults:
        seconds = fault.recovery_seconds
        if seconds is None:
            verdict.unrecovered += 1
        else:
            verdict.recoveries.append(seconds)
    timeline = Timeline(incarnations)
    verdict.takeovers_of = [timeline.takeovers(fault) for fault in faults]
    verdict.silence = timeline.silence()
    return verdict


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least that share of the values does not exceed; None if empty."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class WriterEdits:
    """The fate of one incarnation's edits: numbers with the time of the promise, by document."""

    edits: int = 0
    acked: dict[str, dict[int, float]] = field(default_factory=dict)
    stored_only: dict[str, dict[int, float]] = field(default_factory=dict)  # in a local store, not ACKed
    open: dict[str, list[int]] = field(default_factory=dict)  # neither stored nor ACKed


def promised(incarnation: WriterRun) -> WriterEdits:
    """Return the promises that an incarnation got, from its events."""
    result = WriterEdits()
    waiting: dict[str, list[int]] = {}  # written, not ACKed
    stored: dict[str, dict[int, float]] = {}
    for event in incarnation.events:
        document, number = event.document, event.number
        match event.kind:
            case "wrote":
                result.edits += 1
                waiting.setdefault(document, []).append(number)
            case "stored":
                kept = stored.setdefault(document, {})
                kept.update(
                    (one, event.at) for one in waiting.get(document, ()) if one <= number and one not in kept
                )
            case "acked":
                here = waiting.get(document, [])
                count = bisect_right(here, number)
                result.acked.setdefault(document, {}).update((one, event.at) for one in here[:count])
                del here[:count]
            case "dropped":
                here = waiting.get(document, [])
                count = bisect_right(here, number)
                result.open.setdefault(document, []).extend(here[:count])
                del here[:count]
            case _:
                pass
    for document, numbers in waiting.items():
        result.open.setdefault(document, []).extend(numbers)
    for document, numbers in result.open.items():
        kept = stored.get(document, {})
        result.stored_only[document] = {one: kept[one] for one in numbers if one in kept}
        result.open[document] = [one for one in numbers if one not in kept]
    return result


class Timeline:
    """Writes and ACKs of every document, in order of time."""

    def __init__(self, incarnations: Sequence[WriterRun]) -> None:
        events: dict[str, list[tuple[float, int, int]]] = {}  # time, 0 written / 1 ACKed / 2 ended, count
        self._edits: dict[str, list[tuple[float, float]]] = {}  # written at, ACKed at
        for incarnation in incarnations:
            for document, found in _events(incarnation).items():
                events.setdefault(document, []).extend(found)
            for document, pairs in _acked_edits(incarnation).items():
                self._edits.setdefault(document, []).extend(pairs)
        self._events = {document: sorted(found) for document, found in events.items()}
        for pairs in self._edits.values():
            pairs.sort()

    def takeovers(self, fault: FaultRecord) -> list[float]:
        """Return the seconds until each of the fault's documents was ACKed again."""
        found: list[float] = []
        for document in fault.owned:
            pairs = self._edits.get(document, [])
            later = pairs[bisect_right(pairs, (fault.injected_at, math.inf)) :]
            if later and later[0][0] <= fault.injected_at + _EDITED_WITHIN_SECONDS:
                found.append(min(acked for _, acked in later) - fault.injected_at)
        return found

    def silence(self) -> AckGap:
        longest = AckGap()
        for document, events in self._events.items():
            waiting, since = 0, 0.0
            for at, kind, count in events:
                if kind != 0 and waiting and at - since > longest.seconds:
                    longest = AckGap(at - since, document, since)
                if (kind == 0 and not waiting) or kind == 1:
                    since = at
                waiting += count if kind == 0 else -count
        return longest


def _count_unacked(
    verdict: FaultRunVerdict,
    incarnation: WriterRun,
    promises: WriterEdits,
    there: Mapping[str, Mapping[str, int]],
    *,
    emptied: bool,
) -> None:
    """Count each unACKed edit once; forgotten ones are counted already."""
    for kept, by_document in ((False, promises.open), (True, promises.stored_only)):
        for document, numbers in by_document.items():
            for number in numbers:
                if document not in there:
                    verdict.not_known += 1
                elif incarnation.mark(number) in there[document]:
                    verdict.unrecorded += 1
                elif not kept:
                    verdict.unknown += 1
                elif not emptied:
                    verdict.not_known += 1


def _missing(
    incarnation: WriterRun,
    promises: Mapping[str, Mapping[int, float]],
    there: Mapping[str, Mapping[str, int]],
) -> list[MissingEdit]:
    return [
        MissingEdit(document, incarnation.mark(number), at)
        for document, numbers in promises.items()
        if document in there
        for number, at in numbers.items()
        if incarnation.mark(number) not in there[document]
    ]


def _differing(incarnations: Sequence[WriterRun], finals: Mapping[str, FinalContents | None]) -> list[str]:
    """Return the documents whose running replicas last showed other content than the final one."""
    found: set[str] = set()
    for incarnation in incarnations:
        seen = {event.document: event.words for event in incarnation.events if event.kind == "seen"}
        for document, words in seen.items():
            final = finals.get(document)
            if final is not None and final.digest != words:
                found.add(document)
    return sorted(found)


def _events(incarnation: WriterRun) -> dict[str, list[tuple[float, int, int]]]:
    events: dict[str, list[tuple[float, int, int]]] = {}
    waiting: dict[str, list[int]] = {}
    for event in incarnation.events:
        here = waiting.setdefault(event.document, [])
        if event.kind == "wrote":
            here.append(event.number)
            events.setdefault(event.document, []).append((event.at, 0, 1))
        elif event.kind in ("acked", "dropped"):
            count = bisect_right(here, event.number)
            del here[:count]
            if count:
                events[event.document].append((event.at, 1 if event.kind == "acked" else 2, count))
    if incarnation.ended_at is not None:
        for document, here in waiting.items():
            if here:
                events[document].append((incarnation.ended_at, 2, len(here)))
    return events


def _acked_edits(incarnation: WriterRun) -> dict[str, list[tuple[float, float]]]:
    written: dict[tuple[str, int], float] = {
        (event.document, event.number): event.at for event in incarnation.events if event.kind == "wrote"
    }
    return {
        document: [(written[document, number], at) for number, at in numbers.items()]
        for document, numbers in promised(incarnation).acked.items()
    }

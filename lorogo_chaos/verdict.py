"""What a drill has shown: writers' notes and final documents in, counts and times out. Pure.

- *lost*: a mark that a writer noted as ACKed, and that is not in the final document.
- *forgotten*: a mark that a writer's local store promised and, emptied, did not bring.
- Every edit is one of these, and of one only: ACKed (also if it is lost), not noted as ACKed but there, never
  ACKed and gone, forgotten, or not known (nobody read its document, or its local store was not emptied).
- *duplicated*: a mark that is in the final document more than once.
- *takeover*: from the strike at a server until the first ACK of an edit that was made after it, for each
  document that the server owned and that somebody edited within a second of the strike.
- *unavailable*: how long a document had something unACKed and got no ACK.
- *recovery*: from the end of a fault until everything that was written before it ended was ACKed, and every
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
    """What a new client was given of a document at the end."""

    marks: tuple[str, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """One fault, from its strike to the recovery."""

    name: str
    words: str
    struck_at: float
    ended_at: float  # mended: nothing stands in the way any more
    recovered_at: float | None  # None: not within the time that was given
    owned: tuple[str, ...] = ()  # documents of the server that was struck: they must be taken over
    felt: bool = True  # False: it had no effect

    @property
    def recovery_seconds(self) -> float | None:
        return None if self.recovered_at is None else max(0.0, self.recovered_at - self.ended_at)


@dataclass(frozen=True, slots=True)
class MissingEdit:
    """An edit that was promised and is not there."""

    document: str
    mark: str
    promised_at: float


@dataclass(frozen=True, slots=True)
class AckGap:
    """The longest time that a document had something unACKed and got no ACK."""

    seconds: float = 0.0
    document: str = ""
    began_at: float = 0.0


@dataclass
class FaultRunVerdict:
    """The counts and times of a drill."""

    edits: int = 0
    acked: int = 0
    lost: list[MissingEdit] = field(default_factory=list)
    forgotten: list[MissingEdit] = field(default_factory=list)
    duplicated: dict[str, list[str]] = field(default_factory=dict)  # marks by document
    unknown: int = 0  # edits that were never ACKed and are not there: killed with their writer
    unnoted: int = 0  # edits that are there, and whose writer died before it noted an ACK
    not_known: int = 0  # edits that were not ACKed, of which nobody can say whether they are there
    unread: list[str] = field(default_factory=list)  # documents that nobody could read at the end
    differing: list[str] = field(default_factory=list)  # whose replicas did not become equal
    unrested: list[int] = field(default_factory=list)  # writers that did not get everything ACKed at the end
    takeovers_of: list[list[float]] = field(default_factory=list)  # of each fault, in their order
    recoveries: list[float] = field(default_factory=list)
    unrecovered: int = 0  # faults after which not everything was ACKed in time
    silence: AckGap = AckGap()
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def takeovers(self) -> list[float]:
        return [seconds for some in self.takeovers_of for seconds in some]

    @property
    def verified(self) -> bool:
        """Whether every document could be compared with what was noted."""
        return not self.unread and not self.unrested and not self.differing

    @property
    def good(self) -> bool:
        """Whether nothing that was promised is lost, and that is known."""
        return self.verified and not self.lost and not self.forgotten


def judge(
    lives: Sequence[WriterRun],
    finals: Mapping[str, FinalContents | None],
    faults: Sequence[FaultRecord] = (),
    *,
    unrested: Sequence[int] = (),
) -> FaultRunVerdict:
    """The verdict. `finals`: every document, None if it could not be read; one that is not in it was not."""
    verdict = FaultRunVerdict(unrested=sorted(unrested))
    edited = {note.document for life in lives for note in life.notes if note.kind == "wrote"}
    verdict.unread = sorted(document for document in edited | finals.keys() if finals.get(document) is None)
    there = {document: Counter(final.marks) for document, final in finals.items() if final is not None}
    for document, marks in sorted(there.items()):
        twice = sorted(mark for mark, count in marks.items() if count > 1)
        if twice:
            verdict.duplicated[document] = twice
    for life in lives:
        promises = promised(life)
        verdict.edits += promises.edits
        verdict.acked += sum(map(len, promises.acked.values()))
        verdict.lost += _missing(life, promises.acked, there)
        emptied = life.stored and life.writer not in verdict.unrested  # by its last life
        if emptied:
            verdict.forgotten += _missing(life, promises.stored_only, there)
        _count_unacked(verdict, life, promises, there, emptied=emptied)
    verdict.differing = _differing(lives, finals)
    verdict.faults = Counter(fault.name for fault in faults)
    for fault in faults:
        seconds = fault.recovery_seconds
        if seconds is None:
            verdict.unrecovered += 1
        else:
            verdict.recoveries.append(seconds)
    timeline = Timeline(lives)
    verdict.takeovers_of = [timeline.takeovers(fault) for fault in faults]
    verdict.silence = timeline.silence()
    return verdict


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least that share is not above; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass
class WriterEdits:
    """What became of the edits of one life; numbers with the time of the promise, by document."""

    edits: int = 0
    acked: dict[str, dict[int, float]] = field(default_factory=dict)
    stored_only: dict[str, dict[int, float]] = field(default_factory=dict)  # in a local store, not ACKed
    open: dict[str, list[int]] = field(default_factory=dict)  # neither


def promised(life: WriterRun) -> WriterEdits:
    """What a life was promised, by its notes."""
    result = WriterEdits()
    waiting: dict[str, list[int]] = {}  # written, not ACKed
    stored: dict[str, dict[int, float]] = {}
    for note in life.notes:
        document, number = note.document, note.number
        match note.kind:
            case "wrote":
                result.edits += 1
                waiting.setdefault(document, []).append(number)
            case "stored":
                kept = stored.setdefault(document, {})
                kept.update(
                    (one, note.at) for one in waiting.get(document, ()) if one <= number and one not in kept
                )
            case "acked":
                here = waiting.get(document, [])
                count = bisect_right(here, number)
                result.acked.setdefault(document, {}).update((one, note.at) for one in here[:count])
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
    """Writes and ACKs of every document, in the order of time."""

    def __init__(self, lives: Sequence[WriterRun]) -> None:
        events: dict[str, list[tuple[float, int, int]]] = {}  # when, 0 written / 1 ACKed / 2 gone, how many
        self._edits: dict[str, list[tuple[float, float]]] = {}  # written at, ACKed at
        for life in lives:
            for document, happened in _events(life).items():
                events.setdefault(document, []).extend(happened)
            for document, pairs in _acked_edits(life).items():
                self._edits.setdefault(document, []).extend(pairs)
        self._events = {document: sorted(happened) for document, happened in events.items()}
        for pairs in self._edits.values():
            pairs.sort()

    def takeovers(self, fault: FaultRecord) -> list[float]:
        """Seconds until each of its documents was ACKed again."""
        found: list[float] = []
        for document in fault.owned:
            pairs = self._edits.get(document, [])
            later = pairs[bisect_right(pairs, (fault.struck_at, math.inf)) :]
            if later and later[0][0] <= fault.struck_at + _EDITED_WITHIN_SECONDS:
                found.append(min(acked for _, acked in later) - fault.struck_at)
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
    life: WriterRun,
    promises: WriterEdits,
    there: Mapping[str, Mapping[str, int]],
    *,
    emptied: bool,
) -> None:
    """Count each edit without an ACK once; the forgotten ones are counted."""
    for kept, by_document in ((False, promises.open), (True, promises.stored_only)):
        for document, numbers in by_document.items():
            for number in numbers:
                if document not in there:
                    verdict.not_known += 1
                elif life.mark(number) in there[document]:
                    verdict.unnoted += 1
                elif not kept:
                    verdict.unknown += 1
                elif not emptied:
                    verdict.not_known += 1


def _missing(
    life: WriterRun, promises: Mapping[str, Mapping[int, float]], there: Mapping[str, Mapping[str, int]]
) -> list[MissingEdit]:
    return [
        MissingEdit(document, life.mark(number), at)
        for document, numbers in promises.items()
        if document in there
        for number, at in numbers.items()
        if life.mark(number) not in there[document]
    ]


def _differing(lives: Sequence[WriterRun], finals: Mapping[str, FinalContents | None]) -> list[str]:
    """Documents of which a replica that still lives last showed something else than the final one."""
    found: set[str] = set()
    for life in lives:
        seen = {note.document: note.words for note in life.notes if note.kind == "seen"}
        for document, words in seen.items():
            final = finals.get(document)
            if final is not None and final.digest != words:
                found.add(document)
    return sorted(found)


def _events(life: WriterRun) -> dict[str, list[tuple[float, int, int]]]:
    events: dict[str, list[tuple[float, int, int]]] = {}
    waiting: dict[str, list[int]] = {}
    for note in life.notes:
        here = waiting.setdefault(note.document, [])
        if note.kind == "wrote":
            here.append(note.number)
            events.setdefault(note.document, []).append((note.at, 0, 1))
        elif note.kind in ("acked", "dropped"):
            count = bisect_right(here, note.number)
            del here[:count]
            if count:
                events[note.document].append((note.at, 1 if note.kind == "acked" else 2, count))
    if life.ended_at is not None:
        for document, here in waiting.items():
            if here:
                events[document].append((life.ended_at, 2, len(here)))
    return events


def _acked_edits(life: WriterRun) -> dict[str, list[tuple[float, float]]]:
    written: dict[tuple[str, int], float] = {
        (note.document, note.number): note.at for note in life.notes if note.kind == "wrote"
    }
    return {
        document: [(written[document, number], at) for number, at in numbers.items()]
        for document, numbers in promised(life).acked.items()
    }

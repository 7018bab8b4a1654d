"""`lorogo log repair`: what would mend a log, and the mending itself.

Nothing is changed without `--apply`. With it the order is: what the next writer would do anyway (leftovers
of a crash removed, half-written tails cut, open segments sealed), then damaged segments, one by one.
Originals of what is cut or replaced are on the disk as `.broken` before anything is touched.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lorogo_cli.errors import CommandError
from lorogo_cli.log.errors import printing
from lorogo_cli.log.found import LogListing, found
from lorogo_cli.log.survey import SegmentCheck, SegmentCondition, SegmentDamage, lost_words, survey
from lorogo_cli.log.verify import damage_facts, gap_sentence, left_out_sentence, lost_range, lost_shown
from lorogo_cli.render.output import say, say_json, say_table, working
from lorogo_cli.render.values import show_count, show_size
from lorogo_log import RecoveryMode
from lorogo_log.format import names
from lorogo_log.maintenance import sealed_segments
from lorogo_log.recovery.recovery import recover, salvage
from lorogo_log.storage.disk import Directory, DiskDirectory
from lorogo_log.storage.segment import Segment, scan

if TYPE_CHECKING:
    from lorogo_cli.log.replica import ReplicaSource
    from lorogo_log.transfer.wire import SegmentEntry


SECRET_ENVIRONMENT = "LOROGO_LOG_SECRET"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """What is to be done with one file."""

    name: str
    action: str  # remove, rename, seal, cut, fetch, salvage, put aside, leave
    why: str


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """What was asked for."""

    apply: bool = False
    salvage: bool = False
    #: HOST:PORT of a replica
    replica: str | None = None
    fill_gaps: bool = False
    secret: bytes | None = None


def secret_of(file: Path | None) -> bytes | None:
    """The secret of the log's replicas: a file's bytes without the newline, else the environment's."""
    if file is None:
        return os.environb.get(SECRET_ENVIRONMENT.encode()) or None
    try:
        secret = file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise CommandError(f"the secret in {file} cannot be read: {error.strerror}") from None
    if not secret:
        raise CommandError(f"{file} is empty: it should hold the replicas' secret")
    return secret


def repair(path: Path, wish: RepairOptions, *, as_json: bool) -> bool:
    """Print the plan or what was done; whether no damage is left."""
    if wish.fill_gaps and wish.replica is None:
        raise CommandError("--fill-gaps fetches what is missing: say from where, with --from HOST:PORT")
    here = found(path)
    with nullcontext() if wish.replica is None else _source(wish.replica, here, wish.secret) as source:
        if wish.apply:
            return _apply(path, DiskDirectory(path), source, wish, as_json=as_json)
        with working(f"reading {path}"):
            verdicts = list(survey(here))
        _refuse_unreadable(verdicts)
        steps = plan(here, verdicts, source, wish)
        elsewhere = [] if wish.fill_gaps else _missing(verdicts, source)
    report = RepairReport(
        path,
        steps,
        [fault for verdict in verdicts for fault in verdict.damage],
        here.writer,
        gaps=[verdict.gap for verdict in verdicts if verdict.gap is not None],
        left_out=[verdict.left_out for verdict in verdicts if verdict.left_out is not None],
        asks=wish.replica is None,
        elsewhere=elsewhere,
    )
    _show(report, as_json=as_json)
    return not report.left and not here.strangers


def _source(address: str, here: LogListing, secret: bytes | None) -> "ReplicaSource":
    from lorogo_cli.log.replica import ReplicaSource

    return ReplicaSource(address, here, secret)


def _missing(verdicts: list[SegmentCheck], source: "ReplicaSource | None") -> "list[SegmentEntry]":
    """Segments that a replica has where this log has a gap, and behind its end."""
    if source is None or not verdicts:
        return []
    gaps = [verdict.gap for verdict in verdicts if verdict.gap is not None]
    inner = [entry for gap in gaps for entry in source.between(*gap)]
    return inner + source.behind(verdicts[-1].name)


def plan(
    here: LogListing, verdicts: list[SegmentCheck], source: "ReplicaSource | None", wish: RepairOptions
) -> list[RepairStep]:
    """What to do, file by file; nothing for what is good."""
    known = {entry.name for entry in here.entries}
    steps = [
        RepairStep(Path(stranger.path).name, "leave", f"it {stranger.reason}: move it away by hand")
        for stranger in here.strangers
    ]
    if here.writer is not None:
        known |= set(here.directory.list())  # what is prepared or rewritten is in use
    steps += [
        RepairStep(name, "remove", "left by a crash, or prepared and not used")
        for name in sorted(here.directory.list())
        if name not in known and (names.is_temporary(name) or names.PREPARED.fullmatch(name))
    ]
    for verdict in verdicts:
        if names.PREPARED.fullmatch(verdict.name):
            new = names.segment_name(verdict.first_sequence, verdict.first_time)
            steps.append(RepairStep(verdict.name, "rename", f"to {new}: the rename was lost in a crash"))
        steps += _steps(verdict, source, wish, newest=verdict is verdicts[-1])
    for entry in _missing(verdicts, source) if wish.fill_gaps else ():
        why = f"missing here; the replica has it: {_sequences(entry.first_sequence, entry.last_sequence)}"
        steps.append(RepairStep(entry.name, "fetch", why))
    return steps


def _sequences(first: int, last: int) -> str:
    return f"sequence {first}" if first == last else f"sequences {first} to {last}"


def _fetchable(verdict: SegmentCheck, source: "ReplicaSource | None") -> bool:
    """Whether the replica has a copy that mends it: all that is known to have been there, and good."""
    if source is None:
        return False
    kinds = {fault.kind for fault in verdict.damage}
    ends = [fault.lost[1] or 0 for fault in verdict.damage if fault.lost and not fault.bound]
    reach = max([verdict.last_sequence or 0, *ends])
    if "corrupt" in kinds:
        return source.has(verdict.name, reach)
    return "torn" in kinds and source.has(verdict.name, reach + 1)


def _steps(
    verdict: SegmentCheck, source: "ReplicaSource | None", wish: RepairOptions, *, newest: bool
) -> Iterator[RepairStep]:
    faults = list(verdict.damage)
    match verdict.state:
        case SegmentCondition.OPEN:
            yield RepairStep(verdict.name, "seal", "its writer did not close it; all records are there")
        case SegmentCondition.TORN if _fetchable(verdict, source):
            yield RepairStep(
                verdict.name, "fetch", "the replica has more of it; the original is kept as .broken"
            )
        case SegmentCondition.TORN:
            cut = verdict.bytes - faults[0].offset
            why = f"{show_size(cut)} from byte {faults[0].offset} on, kept as .broken: {faults[0].reason}"
            yield RepairStep(verdict.name, "cut", why)
        case SegmentCondition.DAMAGED if all(fault.kind in {"seal", "torn"} for fault in faults):
            yield RepairStep(verdict.name, "seal", "its trailer is not whole; all records are there")
        case SegmentCondition.DAMAGED:
            lost = lost_shown(faults)
            have = show_count(verdict.records or 0, "record")
            if _fetchable(verdict, source):
                yield RepairStep(
                    verdict.name, "fetch", "the replica has a good copy; the original is kept as .broken"
                )
            elif not verdict.records and wish.salvage:
                why = f"nothing in it can be read, {lost}: kept as .broken, an empty segment keeps its place"
                yield RepairStep(verdict.name, "put aside", why)
            elif verdict.foreign and newest:
                why = "not a segment of a lorogo log: move it away by hand, or --from or --salvage mends it"
                yield RepairStep(verdict.name, "leave", why)
            elif not verdict.records:
                why = f"nothing in it can be read, {lost}; --from or --salvage mends it"
                yield RepairStep(verdict.name, "leave", why)
            elif wish.salvage:
                yield RepairStep(
                    verdict.name, "salvage", f"{have} kept, {lost}; the original is kept as .broken"
                )
            else:
                yield RepairStep(
                    verdict.name, "leave", f"{have} served, {lost}; --from or --salvage mends it"
                )
        case (
            SegmentCondition.GOOD
            | SegmentCondition.SEALED
            | SegmentCondition.WRITING
            | SegmentCondition.UNREADABLE
        ):
            pass


def _refuse_unreadable(verdicts: list[SegmentCheck]) -> None:
    """What this program does not understand is not touched at all."""
    for verdict in verdicts:
        if verdict.state is SegmentCondition.UNREADABLE:
            raise CommandError(verdict.problem)


def _refuse_strangers(here: LogListing, verdicts: list[SegmentCheck]) -> None:
    """With these among the files no writer could open the log, and what they should be is unknown."""
    for stranger in here.strangers:
        raise CommandError(f"{stranger.path} {stranger.reason}: move it away first; nothing was changed")
    if verdicts and verdicts[-1].foreign:
        (fault, *_) = verdicts[-1].damage
        what = "wrong magic: not a segment of a lorogo log"
        raise CommandError(f"{fault.path}: {what}; move it away first; nothing was changed")


# -- the mending -----------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path, directory: Directory) -> Iterator[None]:
    """No appender beside us. Raises LockedError."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise CommandError(
            f"{path} cannot be changed: permission denied; run this as the user who owns the log"
        )
    lock = directory.lock(names.APPEND_LOCK, exclusive=True, wait_seconds=0)
    try:
        yield
    finally:
        lock.release()


def _found_alone(path: Path) -> LogListing:
    """The log, while we hold its lock: the writer that the system sees is this process."""
    return replace(found(path), writer=None)


def _apply(
    path: Path, directory: Directory, source: "ReplicaSource | None", wish: RepairOptions, *, as_json: bool
) -> bool:
    with working(f"mending {path}"), _alone(path, directory):
        here = _found_alone(path)
        before = list(survey(here))
        _refuse_unreadable(before)
        steps = plan(here, before, source, wish)
        mended = bool(before) and (wish.salvage or _fetchable(before[-1], source))
        _refuse_strangers(here, [] if mended else before)
        missing = _missing(before, source) if wish.fill_gaps else []
        for verdict in before:
            if source is not None and _fetchable(verdict, source):
                source.install(here, verdict.name)
        recover(directory, RecoveryMode.TAIL)
        if source is not None:
            _fill(path, source, missing)
        if wish.salvage:
            _salvage_all(path, directory)
        now = _found_alone(path)
        after = list(survey(now))
        elsewhere = [] if wish.fill_gaps else _missing(after, source)
    left = [fault for verdict in after for fault in verdict.damage]
    for_good = [
        fault
        for verdict in before
        for fault in verdict.damage
        if fault.lost
        and fault.path not in {one.path for one in left}
        and not (source is not None and _fetchable(verdict, source))
    ]
    bad = {Path(fault.path).name for fault in left}
    steps = [_done(step, bad) for step in steps]
    kept = sorted(set(now.broken) - set(here.broken))
    gaps = [verdict.gap for verdict in after if verdict.gap is not None]
    report = RepairReport(
        path,
        steps,
        left,
        None,
        applied=True,
        lost=for_good,
        kept=kept,
        gaps=gaps,
        left_out=[verdict.left_out for verdict in after if verdict.left_out is not None],
        elsewhere=elsewhere,
    )
    _show(report, as_json=as_json)
    return not left


def _done(step: RepairStep, bad: set[str]) -> RepairStep:
    """What came of a step: where nothing tells whose log it is, nothing can take a segment's place."""
    if step.action == "put aside" and step.name in bad:
        why = "no other segment tells which log this is: copy it from a backup, or move it away by hand"
        return RepairStep(step.name, "leave", why)
    return step


def _fill(path: Path, source: "ReplicaSource", missing: "list[SegmentEntry]") -> None:
    """Fetch what is missing: in between from behind, so that each leads to the next; then at the end."""
    newest = _found_alone(path).entries[-1].first_sequence if missing else 0
    inner = [entry for entry in missing if entry.first_sequence < newest]
    end = [entry for entry in missing if entry.first_sequence > newest]
    for entry in [*reversed(inner), *end]:
        source.install(_found_alone(path), entry.name)


def _salvage_all(path: Path, directory: Directory) -> None:
    """Rewrite what is damaged from what is good in it; what holds nothing gets an empty stand-in."""
    here = _found_alone(path)
    with sealed_segments.cleaning(directory):
        for verdict in survey(here):
            if verdict.state is SegmentCondition.DAMAGED and verdict.records:
                _salvage(directory, verdict)
    here = _found_alone(path)
    if any(verdict.state is SegmentCondition.DAMAGED for verdict in survey(here)):
        from lorogo_cli.log.replica import identity_of

        log_id, _ = identity_of(here)
        recover(directory, RecoveryMode.SALVAGE, log_id=log_id if any(log_id) else None)


def _salvage(directory: Directory, verdict: SegmentCheck) -> None:
    """Rewrite one segment from its good frames."""
    segment = Segment.open(directory, verdict.name)
    try:
        ends = [fault.lost[1] or 0 for fault in verdict.damage if fault.lost]
        last = max(scan(segment).next_sequence - 1, *ends, 0)
        salvage(directory, segment, last_sequence=last)
    finally:
        segment.close()


# -- what is shown ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepairReport:
    """A plan, or what was done."""

    path: Path
    steps: list[RepairStep]
    #: damage that is there (now)
    left: list[SegmentDamage]
    writer: int | None
    applied: bool = False
    #: damage that is gone, and its records with it
    lost: list[SegmentDamage] = field(default_factory=list)
    #: the .broken files that were made
    kept: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    #: sequences that were never given
    left_out: list[tuple[int, int]] = field(default_factory=list)
    #: no replica was asked yet
    asks: bool = False
    #: what the replica has and this log has not
    elsewhere: "list[SegmentEntry]" = field(default_factory=list)


def _show(report: RepairReport, *, as_json: bool) -> None:
    with printing():
        if as_json:
            say_json(_facts(report), pretty=False)
            return
        steps = report.steps
        if steps:
            header = ("FILE", "DONE" if report.applied else "TO DO", "WHY")
            say_table(header, [(step.name, step.action, step.why) for step in steps])
        else:
            say("nothing to mend")
        for gap in report.gaps:
            say(gap_sentence(*gap))
        for left_out in report.left_out:
            say(left_out_sentence(*left_out))
        if report.elsewhere:
            say(_elsewhere(report))
        for sentence in _after(report) if report.applied else _before(report):
            say(sentence)


def _elsewhere(report: RepairReport) -> str:
    """What the replica could give, if that is wanted."""
    ranges = ", ".join(_sequences(one.first_sequence, one.last_sequence) for one in report.elsewhere)
    return (
        f"the replica also has {ranges}, not in this log; --fill-gaps fetches"
        f" {'it' if len(report.elsewhere) == 1 else 'them'} (also what was cleaned away here on purpose)"
    )


def _facts(report: RepairReport) -> dict[str, object]:
    least, most = lost_range(report.lost)
    return {
        "directory": str(report.path),
        "applied": report.applied,
        "writer": report.writer,
        "steps": [{"name": step.name, "action": step.action, "why": step.why} for step in report.steps],
        "damage": [damage_facts(fault) for fault in report.left],
        "lost": [list(fault.lost) for fault in report.lost if fault.lost],
        "lost_at_least": least,
        "lost_at_most": most,
        "kept": report.kept,
        "gaps": [list(gap) for gap in report.gaps],
        "left_out": [list(one) for one in report.left_out],
        "elsewhere": [[one.first_sequence, one.last_sequence] for one in report.elsewhere],
    }


def _before(report: RepairReport) -> Iterator[str]:
    """What a plan means."""
    actions = {step.action for step in report.steps}
    where = shlex.quote(str(report.path))
    if actions - {"leave"}:
        yield (
            "nothing was changed; with --apply the above would be done, and what is cut or replaced would be"
            f" kept as .broken in {where}"
        )
    elif actions:
        yield "nothing was changed, and --apply alone would not change anything either"
    leaves = any(step.why.endswith("--from or --salvage mends it") for step in report.steps)
    if leaves or (report.asks and any(step.action == "cut" for step in report.steps)):
        yield f"best: `lorogo log repair {where} --from HOST:PORT --apply` fetches good copies from a replica"
    if leaves:
        yield f"else: `lorogo log repair {where} --salvage --apply` keeps what is good, and no more"
    if report.writer is not None:
        yield f"process {report.writer} is writing to the log: --apply is refused until it has stopped"


def _after(report: RepairReport) -> Iterator[str]:
    """What was done means."""
    for name in report.kept:
        yield f"kept: {name}"
    for fault in report.lost:
        assert fault.lost is not None
        one = fault.lost[0] == fault.lost[1]
        which = lost_words(*fault.lost, bound=fault.bound)
        yield f"{which} lost, unless a replica or a backup has {'it' if one else 'them'}"
    for fault in report.left:
        yield f"{fault.kind}: {fault.sentence()}"
    if report.steps:
        checks = "what is left checks now" if report.lost else "everything checks now"
        yield "damage is left" if report.left else checks

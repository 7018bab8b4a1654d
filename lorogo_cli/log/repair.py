"""`lorogo log repair`: plan the repair of a log, and apply it.

Nothing is changed without `--apply`. Order: first the work of the next writer (remove leftovers of a crash,
cut incomplete tails, seal open segments), then damaged segments, one by one. Before data is cut or replaced,
the original is on the disk as `.broken`.
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
from lorogo_log.recovery import sealed_segments
from lorogo_log.recovery.recovery import recover, salvage
from lorogo_log.storage.disk import Directory, DiskDirectory
from lorogo_log.storage.segment import Segment, scan

if TYPE_CHECKING:
    from lorogo_cli.log.replica import ReplicaSource
    from lorogo_log.transfer.wire import SegmentEntry


SECRET_ENVIRONMENT = "LOROGO_LOG_SECRET"
_REPAIRS = "--from or --salvage repairs it"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """A planned action on one file."""

    name: str
    action: str  # remove, rename, seal, cut, fetch, salvage, put aside, leave
    why: str


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """Options of the command."""

    apply: bool = False
    salvage: bool = False
    #: HOST:PORT of a replica
    replica: str | None = None
    fill_gaps: bool = False
    secret: bytes | None = None


def secret_of(file: Path | None) -> bytes | None:
    """Return the replicas' secret: a file's bytes without the newline, else from the environment."""
    if file is None:
        return os.environb.get(SECRET_ENVIRONMENT.encode()) or None
    try:
        secret = file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise CommandError(f"cannot read the secret in {file}: {error.strerror}") from None
    if not secret:
        raise CommandError(f"{file} is empty: it must contain the replicas' secret")
    return secret


def repair(path: Path, options: RepairOptions, *, as_json: bool) -> bool:
    """Print the plan or the applied steps; return whether no damage remains."""
    if options.fill_gaps and options.replica is None:
        raise CommandError("--fill-gaps needs a replica to fetch segments from: add --from HOST:PORT")
    here = found(path)
    with (
        nullcontext() if options.replica is None else _source(options.replica, here, options.secret) as source
    ):
        if options.apply:
            return _apply(path, DiskDirectory(path), source, options, as_json=as_json)
        with working(f"reading {path}"):
            checks = list(survey(here))
        _refuse_unreadable(checks)
        steps = plan(here, checks, source, options)
        elsewhere = [] if options.fill_gaps else _missing(checks, source)
    report = RepairReport(
        path,
        steps,
        [fault for check in checks for fault in check.damage],
        here.writer,
        gaps=[check.gap for check in checks if check.gap is not None],
        left_out=[check.left_out for check in checks if check.left_out is not None],
        asks=options.replica is None,
        elsewhere=elsewhere,
    )
    _show(report, as_json=as_json)
    return not report.left and not here.blocking


def _source(address: str, here: LogListing, secret: bytes | None) -> "ReplicaSource":
    from lorogo_cli.log.replica import ReplicaSource

    return ReplicaSource(address, here, secret)


def _missing(checks: list[SegmentCheck], source: "ReplicaSource | None") -> "list[SegmentEntry]":
    """Return the replica's segments in gaps of this log and after its end."""
    if source is None or not checks:
        return []
    gaps = [check.gap for check in checks if check.gap is not None]
    inner = [entry for gap in gaps for entry in source.between(*gap)]
    return inner + source.behind(checks[-1].name)


def plan(
    here: LogListing, checks: list[SegmentCheck], source: "ReplicaSource | None", options: RepairOptions
) -> list[RepairStep]:
    """Return the steps, file by file; good files need none."""
    known = {entry.name for entry in here.entries}
    steps = [
        RepairStep(Path(file.path).name, "leave", f"it {file.reason}: move it away manually")
        for file in here.blocking
    ]
    if here.writer is not None:
        known |= set(here.directory.list())  # the writer uses prepared and rewritten files
    steps += [
        RepairStep(name, "remove", "left by a crash, or prepared and unused")
        for name in sorted(here.directory.list())
        if name not in known and (names.is_temporary(name) or names.PREPARED.fullmatch(name))
    ]
    for check in checks:
        if names.PREPARED.fullmatch(check.name):
            new = names.segment_name(check.first_sequence, check.first_time)
            steps.append(RepairStep(check.name, "rename", f"to {new}: the rename was lost in a crash"))
        steps += _steps(check, source, options, newest=check is checks[-1])
    for entry in _missing(checks, source) if options.fill_gaps else ():
        why = f"missing here; the replica has it: {_sequences(entry.first_sequence, entry.last_sequence)}"
        steps.append(RepairStep(entry.name, "fetch", why))
    return steps


def _sequences(first: int, last: int) -> str:
    return f"sequence {first}" if first == last else f"sequences {first} to {last}"


def _fetchable(check: SegmentCheck, source: "ReplicaSource | None") -> bool:
    """Return whether the replica has a good copy with all records that this segment is known to have had."""
    if source is None:
        return False
    kinds = {fault.kind for fault in check.damage}
    ends = [fault.lost[1] or 0 for fault in check.damage if fault.lost and not fault.bound]
    reach = max([check.last_sequence or 0, *ends])
    if "corrupt" in kinds:
        return source.has(check.name, reach)
    return "torn" in kinds and source.has(check.name, reach + 1)


def _steps(
    check: SegmentCheck, source: "ReplicaSource | None", options: RepairOptions, *, newest: bool
) -> Iterator[RepairStep]:
    faults = list(check.damage)
    match check.state:
        case SegmentCondition.OPEN:
            yield RepairStep(check.name, "seal", "its writer did not close it; all records are present")
        case SegmentCondition.TORN if _fetchable(check, source):
            yield RepairStep(
                check.name, "fetch", "the replica has more of it; the original is kept as .broken"
            )
        case SegmentCondition.TORN:
            cut = check.bytes - faults[0].offset
            why = f"{show_size(cut)} from byte {faults[0].offset} on, kept as .broken: {faults[0].reason}"
            yield RepairStep(check.name, "cut", why)
        case SegmentCondition.DAMAGED if all(fault.kind in {"seal", "torn"} for fault in faults):
            yield RepairStep(check.name, "seal", "its trailer is incomplete; all records are present")
        case SegmentCondition.DAMAGED:
            lost = lost_shown(faults)
            have = show_count(check.records or 0, "record")
            if _fetchable(check, source):
                yield RepairStep(
                    check.name, "fetch", "the replica has a good copy; the original is kept as .broken"
                )
            elif not check.records and options.salvage:
                why = f"no record can be read, {lost}: kept as .broken, an empty segment takes its place"
                yield RepairStep(check.name, "set aside", why)
            elif check.foreign and newest:
                why = f"not a segment of a lorogo log: move it away manually, or {_REPAIRS}"
                yield RepairStep(check.name, "leave", why)
            elif not check.records:
                why = f"no record can be read, {lost}; {_REPAIRS}"
                yield RepairStep(check.name, "leave", why)
            elif options.salvage:
                yield RepairStep(
                    check.name, "salvage", f"{have} kept, {lost}; the original is kept as .broken"
                )
            else:
                yield RepairStep(check.name, "leave", f"{have} served, {lost}; {_REPAIRS}")
        case (
            SegmentCondition.GOOD
            | SegmentCondition.SEALED
            | SegmentCondition.WRITING
            | SegmentCondition.UNREADABLE
        ):
            pass


def _refuse_unreadable(checks: list[SegmentCheck]) -> None:
    """Raise CommandError if a segment cannot be read: files of an unknown format are not changed."""
    for check in checks:
        if check.state is SegmentCondition.UNREADABLE:
            raise CommandError(check.problem)


def _refuse_blocking(here: LogListing, checks: list[SegmentCheck]) -> None:
    """Raise CommandError for blocking files: no writer can open the log, and their content is unknown."""
    for file in here.blocking:
        raise CommandError(f"{file.path} {file.reason}: move it away first; nothing was changed")
    if checks and checks[-1].foreign:
        (fault, *_) = checks[-1].damage
        what = "wrong magic: not a segment of a lorogo log"
        raise CommandError(f"{fault.path}: {what}; move it away first; nothing was changed")


# -- the repair ------------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path, directory: Directory) -> Iterator[None]:
    """Lock out other writers. Raises LockedError."""
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
    """List the log while we hold its lock: the writer that the system shows is this process."""
    return replace(found(path), writer=None)


def _apply(
    path: Path, directory: Directory, source: "ReplicaSource | None", options: RepairOptions, *, as_json: bool
) -> bool:
    with working(f"repairing {path}"), _alone(path, directory):
        here = _found_alone(path)
        before = list(survey(here))
        _refuse_unreadable(before)
        steps = plan(here, before, source, options)
        repairs_newest = bool(before) and (options.salvage or _fetchable(before[-1], source))
        _refuse_blocking(here, [] if repairs_newest else before)
        missing = _missing(before, source) if options.fill_gaps else []
        for check in before:
            if source is not None and _fetchable(check, source):
                source.install(here, check.name)
        recover(directory, RecoveryMode.TAIL)
        if source is not None:
            _fill(path, source, missing)
        if options.salvage:
            _salvage_all(path, directory)
        now = _found_alone(path)
        after = list(survey(now))
        elsewhere = [] if options.fill_gaps else _missing(after, source)
    left = [fault for check in after for fault in check.damage]
    lost_for_good = [
        fault
        for check in before
        for fault in check.damage
        if fault.lost
        and fault.path not in {one.path for one in left}
        and not (source is not None and _fetchable(check, source))
    ]
    bad = {Path(fault.path).name for fault in left}
    steps = [_done(step, bad) for step in steps]
    kept = sorted(set(now.broken) - set(here.broken))
    gaps = [check.gap for check in after if check.gap is not None]
    report = RepairReport(
        path,
        steps,
        left,
        None,
        applied=True,
        lost=lost_for_good,
        kept=kept,
        gaps=gaps,
        left_out=[check.left_out for check in after if check.left_out is not None],
        elsewhere=elsewhere,
    )
    _show(report, as_json=as_json)
    return not left


def _done(step: RepairStep, bad: set[str]) -> RepairStep:
    """Return the result of a step: without another segment the log id for an empty segment is unknown."""
    if step.action == "set aside" and step.name in bad:
        why = "no other segment has the log's id: copy this one from a backup, or move it away manually"
        return RepairStep(step.name, "leave", why)
    return step


def _fill(path: Path, source: "ReplicaSource", missing: "list[SegmentEntry]") -> None:
    """Fetch missing segments: in gaps from the end, so that each leads to the next; then past the end."""
    newest = _found_alone(path).entries[-1].first_sequence if missing else 0
    inner = [entry for entry in missing if entry.first_sequence < newest]
    end = [entry for entry in missing if entry.first_sequence > newest]
    for entry in [*reversed(inner), *end]:
        source.install(_found_alone(path), entry.name)


def _salvage_all(path: Path, directory: Directory) -> None:
    """Rewrite damaged segments from their good frames; replace segments without any by empty ones."""
    here = _found_alone(path)
    with sealed_segments.cleaning(directory):
        for check in survey(here):
            if check.state is SegmentCondition.DAMAGED and check.records:
                _salvage(directory, check)
    here = _found_alone(path)
    if any(check.state is SegmentCondition.DAMAGED for check in survey(here)):
        from lorogo_cli.log.replica import identity_of

        log_id, _ = identity_of(here)
        recover(directory, RecoveryMode.SALVAGE, log_id=log_id if any(log_id) else None)


def _salvage(directory: Directory, check: SegmentCheck) -> None:
    """Rewrite one segment from its good frames."""
    segment = Segment.open(directory, check.name)
    try:
        ends = [fault.lost[1] or 0 for fault in check.damage if fault.lost]
        last = max(scan(segment).next_sequence - 1, *ends, 0)
        salvage(directory, segment, last_sequence=last)
    finally:
        segment.close()


# -- output ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepairReport:
    """A plan, or the steps that were applied."""

    path: Path
    steps: list[RepairStep]
    #: present damage
    left: list[SegmentDamage]
    writer: int | None
    applied: bool = False
    #: repaired damage whose records are lost
    lost: list[SegmentDamage] = field(default_factory=list)
    #: the new .broken files
    kept: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    #: sequences that were never assigned
    left_out: list[tuple[int, int]] = field(default_factory=list)
    #: no replica was queried yet
    asks: bool = False
    #: segments that only the replica has
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
            say("nothing to repair")
        for gap in report.gaps:
            say(gap_sentence(*gap))
        for left_out in report.left_out:
            say(left_out_sentence(*left_out))
        if report.elsewhere:
            say(_elsewhere(report))
        for sentence in _after(report) if report.applied else _before(report):
            say(sentence)


def _elsewhere(report: RepairReport) -> str:
    """Describe the segments that only the replica has."""
    ranges = ", ".join(_sequences(one.first_sequence, one.last_sequence) for one in report.elsewhere)
    return (
        f"the replica also has {ranges}, not in this log; --fill-gaps fetches"
        f" {'it' if len(report.elsewhere) == 1 else 'them'} (also segments that retention removed here)"
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
    """Yield notes about a plan."""
    actions = {step.action for step in report.steps}
    where = shlex.quote(str(report.path))
    if actions - {"leave"}:
        yield (
            "nothing was changed; --apply runs these steps, and keeps cut and replaced data as .broken in"
            f" {where}"
        )
    elif actions:
        yield "nothing was changed; --apply alone would not change anything either"
    leaves = any(step.why.endswith(_REPAIRS) for step in report.steps)
    if leaves or (report.asks and any(step.action == "cut" for step in report.steps)):
        yield f"best: `lorogo log repair {where} --from HOST:PORT --apply` fetches good copies from a replica"
    if leaves:
        yield f"else: `lorogo log repair {where} --salvage --apply` keeps only the undamaged records"
    if report.writer is not None:
        yield f"process {report.writer} is writing to the log: stop it before you use --apply"


def _after(report: RepairReport) -> Iterator[str]:
    """Yield notes about the applied steps."""
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
        good = "the remaining records are good" if report.lost else "everything is good now"
        yield "damage remains" if report.left else good

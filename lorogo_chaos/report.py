"""The result of a fault run, as tables and as one JSON value. Pure.

Times are those of this machine and run. A run fails only if a promised edit is lost, or could not be
verified.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lorogo_chaos.fault_run import FaultRunResult, FaultRunSettings
from lorogo_chaos.processes.usage import SHORT_SECONDS, WARM_UP_SECONDS, UsageGrowth
from lorogo_chaos.verdict import MissingEdit, percentile

_NAMED_MAX = 20  # lost edits listed as text; JSON has up to a thousand
_JSON_MAX = 1000
_PROBLEMS_SHOWN = 3
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FaultReportTable:
    """One table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def exit_code(outcome: FaultRunResult) -> int:
    """Return 0 if no promised edit is lost, and that is verified; else 1."""
    return 0 if outcome.good else 1


def sentences(outcome: FaultRunResult) -> list[str]:
    """Return the verdict as sentences, the worst first."""
    verdict = outcome.verdict
    found: list[str] = []
    if verdict.lost:
        found.append(f"LOST: {len(verdict.lost)} of {verdict.acked} ACKed edits are not in their documents")
        found += _named(verdict.lost, "ACKed", outcome.began_at)
    if verdict.forgotten:
        found.append(f"LOST: {len(verdict.forgotten)} edits of a local store are missing")
        found += _named(verdict.forgotten, "stored", outcome.began_at)
    if outcome.in_error:
        found.append(f"NOT SERVED: in the state ERROR at the end: {_list(outcome.in_error)}")
    if outcome.unfinished:
        found.append("NOT VERIFIED: interrupted before every document was read from disks")
    elif verdict.unread:
        found.append(f"NOT VERIFIED: no server gave these documents to a new client: {_list(verdict.unread)}")
    if verdict.differing:
        found.append(f"NOT EQUAL: replicas of these documents differ at the end: {_list(verdict.differing)}")
    if verdict.undrained:
        names = [f"writer-{index + 1}" for index in verdict.undrained]
        found.append(f"NOT VERIFIED: at the end {_list(names)} did not confirm that all edits are ACKed")
    if not verdict.acked:
        found.append("NOT VERIFIED: nothing was ACKed")
    if outcome.good:
        found.append(f"nothing lost: all {verdict.acked} ACKed edits are in their documents")
    if not outcome.fault_records:
        found.append("no fault was injected: this run proves nothing about faults")
    if verdict.duplicated:
        count = sum(map(len, verdict.duplicated.values()))
        found.append(f"{count} edits were applied twice, in {_list(sorted(verdict.duplicated))}")
    if verdict.unrecovered:
        found.append(f"after {verdict.unrecovered} faults, not every edit was ACKed in time")
    if outcome.problems:
        found.append(_problems_line(outcome.problems))
    found.append(_growing(outcome.growths))
    if outcome.fresh_bytes and any(one.grows for one in outcome.growths):
        fresh = ", ".join(f"{name} {size / _MIB:.1f} MiB" for name, size in outcome.fresh_bytes.items())
        found.append(f"for comparison, after a restart with its share of the documents loaded: {fresh}")
    if outcome.interrupted:
        found.append("the run was interrupted: no fault was injected after that")
    return found


def main_part(outcome: FaultRunResult, versions: Mapping[str, str]) -> FaultReportTable:
    """Return the table of counts and times."""
    verdict = outcome.verdict
    silence = verdict.silence
    rows = [
        ("edits", str(verdict.edits)),
        ("ACKed", str(verdict.acked)),
        ("not recorded as ACKed, but present", str(verdict.unrecorded)),
        ("never ACKed, and gone with their writer", str(verdict.unknown)),
        *_if_any("kept by a local store, and lost", len(verdict.forgotten)),
        *_if_any("not ACKed, outcome unknown", verdict.not_known),
        ("lost", str(len(verdict.lost) + len(verdict.forgotten))),
        ("duplicated applies", str(sum(map(len, verdict.duplicated.values())))),
        ("faults", str(len(outcome.fault_records))),
        ("takeover p50 / p99", _pair(verdict.takeovers, 0.5, 0.99)),
        ("recovery p50 / max", _pair(verdict.recoveries, 0.5, 1.0)),
        ("longest unavailability", f"{silence.seconds:.1f} s{_of(silence.document)}"),
        ("documents in ERROR", str(len(outcome.in_error))),
        ("took", f"{outcome.seconds / 60:.1f} min"),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
    ]
    return FaultReportTable(("", ""), tuple(rows))


def faults_part(outcome: FaultRunResult) -> FaultReportTable:
    """Return how often each fault was injected, and how long the recovery took."""
    rows: list[tuple[str, ...]] = []
    for name in sorted({one.name for one in outcome.fault_records}):
        some = [one for one in outcome.fault_records if one.name == name]
        seconds = [one.recovery_seconds for one in some if one.recovery_seconds is not None]
        effective = sum(one.effective for one in some)
        count = str(effective) if effective == len(some) else f"{len(some)}, {effective} with effect"
        rows.append((name, count, _pair(seconds, 0.5, 1.0)))
    rows += [(name, "-", f"left out: {why}") for name, why in sorted(outcome.left_out.items())]
    return FaultReportTable(("FAULT", "INJECTED", "RECOVERY p50 / max"), tuple(rows))


def usage_part(outcome: FaultRunResult) -> FaultReportTable:
    """Return memory and open files of each process with enough samples; no rows if there is none."""
    rows = [
        (
            one.name,
            f"{one.seconds:.0f} s",
            f"{one.memory_start / _MIB:.1f} / {one.memory_end / _MIB:.1f}",
            f"{one.memory_per_hour / _MIB:+.1f}",
            "-" if one.files_start is None else f"{one.files_start} / {one.files_end}",
            one.words,
        )
        for one in outcome.growths
        if one.memory_per_hour is not None
    ]
    columns = ("PROCESS", "RAN FOR", "MiB START / END", "MiB PER HOUR", "FILES START / END", "VERDICT")
    return FaultReportTable(columns, tuple(rows))


def as_json(
    outcome: FaultRunResult, settings: FaultRunSettings, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Return all figures, for scripts."""
    verdict = outcome.verdict
    return {
        "good": outcome.good,
        "words": sentences(outcome),
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 3),
        "settings": {
            "nats_servers": settings.nodes,
            "servers": settings.servers,
            "documents": settings.documents,
            "writers": settings.writers,
            "edits_per_second": settings.edits_per_second,
            "edits_each": settings.edits_each,
            "seed": settings.seed,
        },
        "versions": dict(versions),
        "edits": verdict.edits,
        "acked": verdict.acked,
        "lost": len(verdict.lost) + len(verdict.forgotten),
        "lost_edits": [_missing(one) for one in verdict.lost[:_JSON_MAX]],
        "forgotten": len(verdict.forgotten),
        "forgotten_edits": [_missing(one) for one in verdict.forgotten[:_JSON_MAX]],
        "duplicated": sum(map(len, verdict.duplicated.values())),
        "duplicated_edits": {name: marks[:_JSON_MAX] for name, marks in verdict.duplicated.items()},
        "not_noted_but_there": verdict.unrecorded,
        "never_acked_and_gone": verdict.unknown,
        "not_known": verdict.not_known,
        "unread_documents": verdict.unread,
        "differing_documents": verdict.differing,
        "failed_documents": outcome.in_error,
        "writers_without_rest": [f"writer-{index + 1}" for index in verdict.undrained],
        "faults": dict(sorted(verdict.faults.items())),
        "faults_felt": dict(
            sorted(Counter(one.name for one in outcome.fault_records if one.effective).items())
        ),
        "faults_left_out": dict(sorted(outcome.left_out.items())),
        "faults_unrecovered": verdict.unrecovered,
        "takeover_seconds": {
            "count": len(verdict.takeovers),
            "p50": percentile(verdict.takeovers, 0.5),
            "p99": percentile(verdict.takeovers, 0.99),
        },
        "recovery_seconds": {
            "p50": percentile(verdict.recoveries, 0.5),
            "max": max(verdict.recoveries, default=None),
        },
        "unavailable_seconds_max": verdict.silence.seconds,
        "unavailable_document": verdict.silence.document,
        "history": [
            {
                "fault": one.name,
                "words": one.words,
                "felt": one.effective,
                "at": round(one.injected_at - outcome.began_at, 3),
                "lasted": round(one.ended_at - one.injected_at, 3),
                "recovery_seconds": one.recovery_seconds,
                "documents_owned": len(one.owned),
                "takeover_seconds": [round(seconds, 3) for seconds in takeovers],
            }
            for one, takeovers in zip(outcome.fault_records, verdict.takeovers_of, strict=True)
        ],
        "troubles": outcome.problems,
        "processes": [
            {
                "name": one.name,
                "pid": one.pid,
                "seconds": round(one.seconds, 1),
                "memory_bytes_start": one.memory_start,
                "memory_bytes_end": one.memory_end,
                "memory_bytes_per_hour": one.memory_per_hour,
                "files_start": one.files_start,
                "files_end": one.files_end,
                "verdict": one.words,
            }
            for one in outcome.growths
        ],
        "fresh_server_bytes": outcome.fresh_bytes,
        "kept": outcome.folder,
    }


def _problems_line(problems: Sequence[str]) -> str:
    some = "; ".join(problems[:_PROBLEMS_SHOWN])
    more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    return f"{len(problems)} problem{'' if len(problems) == 1 else 's'}: {some}{more}"


def _growing(growths: Sequence[UsageGrowth]) -> str:
    judged = [one for one in growths if one.memory_per_hour is not None]
    growing = [f"{one.name} {one.words}" for one in judged if one.grows]
    if growing:
        return f"memory and open files: {'; '.join(growing)}"
    if judged:
        return f"memory and open files: no growth in {len(judged)} processes"
    least = (WARM_UP_SECONDS + SHORT_SECONDS) / 60
    return f"memory and open files: the run was too short (a process must run {least:g} minutes)"


def _if_any(name: str, count: int) -> list[tuple[str, str]]:
    return [(name, str(count))] if count else []


def _missing(one: MissingEdit) -> dict[str, str]:
    return {"document": one.document, "mark": one.mark}


def _named(some: Sequence[MissingEdit], how: str, began_at: float) -> list[str]:
    words = [
        f"  {one.document}: edit {one.mark}, {how} {one.promised_at - began_at:.1f} s after the start"
        for one in some[:_NAMED_MAX]
    ]
    return words if len(some) <= _NAMED_MAX else [*words, f"  and {len(some) - _NAMED_MAX} more"]


def _pair(values: Sequence[float], one: float, other: float) -> str:
    low, high = percentile(values, one), percentile(values, other)
    return "-" if low is None or high is None else f"{low:.2f} / {high:.2f} s"


def _of(document: str) -> str:
    return f" ({document})" if document else ""


def _list(names: Sequence[str]) -> str:
    some = ", ".join(names[:10])
    return some if len(names) <= 10 else f"{some} and {len(names) - 10} more"

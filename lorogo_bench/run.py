"""Run workloads one after the other; the next workload runs even if one fails."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lorogo_bench.stack.machine import BackgroundCpu
from lorogo_bench.workload import Bench, Check, Workload, WorkloadOutcome
from lorogo_protocol.errors import LorogoError


@dataclass(frozen=True, slots=True)
class Result:
    """A workload and its outcome."""

    workload: Workload
    outcome: WorkloadOutcome
    seconds: float


async def run_all(workloads: Sequence[Workload], bench: Bench) -> list[Result]:
    """Run all workloads, in order."""
    return [await _run(workload, bench) for workload in workloads]


async def _run(workload: Workload, bench: Bench) -> Result:
    bench.progress(f"{workload.name}: {workload.words}")
    began, neighbours = time.perf_counter(), BackgroundCpu()
    try:
        outcome = await workload.run(bench)
    except (LorogoError, TimeoutError, OSError) as error:
        words = f"{type(error).__name__}: {error}"
        outcome = WorkloadOutcome(checks=(Check("the workload finishes", False, words),))
    foreign = neighbours.cores()
    busy = "not known" if foreign is None else f"{foreign:.2f} cores"
    outcome = replace(outcome, conditions={**outcome.conditions, "busy with other processes": busy})
    return Result(workload, outcome, time.perf_counter() - began)

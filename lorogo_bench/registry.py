"""All workloads by name. To add one, write a module in `workloads/` and add it here."""

from collections.abc import Iterable

from lorogo_bench.errors import BenchError
from lorogo_bench.workload import Workload
from lorogo_bench.workloads import (
    cold_open,
    fan_out,
    growth,
    large,
    many_documents,
    presence,
    round_trip,
    scale_out,
    throughput,
)

ALL = "all"  # instead of names
WORKLOADS: tuple[Workload, ...] = (
    round_trip.WORKLOAD,
    throughput.WORKLOAD,
    fan_out.WORKLOAD,
    many_documents.WORKLOAD,
    cold_open.WORKLOAD,
    large.WORKLOAD,
    presence.WORKLOAD,
    growth.WORKLOAD,
    scale_out.WORKLOAD,
)


def find(names: Iterable[str]) -> list[Workload]:
    """Return the named workloads, each once, in order; `all` stands for every one. Raises BenchError."""
    by_name = {one.name: one for one in WORKLOADS}
    wanted = dict.fromkeys(found for name in names for found in (by_name if name == ALL else [name]))
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise BenchError(f"unknown workload {unknown[0]!r}: choose {', '.join(by_name)} or {ALL}")
    return [by_name[name] for name in wanted]

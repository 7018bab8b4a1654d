"""Errors of the benchmark suite itself.

LorogoError
└── BenchError              the benchmark cannot run with these options
    ├── NotReady            a process did not start in time; has the end of its log
    └── LoadFailed          a load process could not run a command; has the reason
"""

from lorogo_protocol.errors import LorogoError


class BenchError(LorogoError):
    """The benchmark cannot run with these options."""

    code = "bench"


class BenchNotReady(BenchError):
    """A process did not start in time."""

    code = "bench-not-ready"


class LoadProcessFailed(BenchError):
    """A load process could not run a command."""

    code = "bench-load-failed"

"""What can go wrong with a benchmark itself.

LorogoError
└── BenchError              it cannot be run as it was told
    ├── NotReady            something did not start in time; says its last words
    └── LoadFailed          a process that makes load could not do what it was told; says why
"""

from lorogo_protocol.errors import LorogoError


class BenchError(LorogoError):
    """It cannot be run as it was told."""

    code = "bench"


class BenchNotReady(BenchError):
    """Something did not start in time."""

    code = "bench-not-ready"


class LoadProcessFailed(BenchError):
    """A process that makes load could not do what it was told."""

    code = "bench-load-failed"

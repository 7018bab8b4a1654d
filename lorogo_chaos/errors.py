"""Errors of a fault run itself.

LorogoError
└── ChaosError              the run cannot continue
    ├── NotPossible         this machine or stack cannot have that fault, with the reason
    └── NotReady            a process did not start, or did not recover, in time
"""

from lorogo_protocol.errors import LorogoError


class ChaosError(LorogoError):
    """The fault run cannot continue."""

    code = "chaos"


class FaultUnavailable(ChaosError):
    """The fault is not possible here."""

    code = "chaos-not-possible"


class StackNotReady(ChaosError):
    """A process did not start, or did not recover, in time."""

    code = "chaos-not-ready"

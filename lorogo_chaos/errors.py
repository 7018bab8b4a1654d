"""What can go wrong with a drill itself.

LorogoError
└── ChaosError              the drill cannot go on as it was told
    ├── NotPossible         this machine, or this stack, cannot have that fault; says why
    └── NotReady            something did not come (back) in time
"""

from lorogo_protocol.errors import LorogoError


class ChaosError(LorogoError):
    """The drill cannot go on as it was told."""

    code = "chaos"


class FaultUnavailable(ChaosError):
    """A fault that cannot be had here."""

    code = "chaos-not-possible"


class StackNotReady(ChaosError):
    """Something did not start, or did not come back, in time."""

    code = "chaos-not-ready"

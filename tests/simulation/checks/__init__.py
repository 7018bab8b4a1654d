"""The invariants of lorogo, one file each, judged by what crossed the broker."""

from collections.abc import Callable
from typing import Protocol

from tests.simulation.checks.acked import NothingAckedIsMissing
from tests.simulation.checks.checker import Checker, Rest, Violation
from tests.simulation.checks.converge import ReplicasConverge
from tests.simulation.checks.deleted import DeletedStaysDeleted
from tests.simulation.checks.fenced import WritesAreFenced
from tests.simulation.checks.honest import StateWordsAreHonest
from tests.simulation.checks.loadable import AcceptedIsLoadable
from tests.simulation.checks.purged import PurgesAreSafe
from tests.simulation.checks.recovered import EverythingRecovers
from tests.simulation.checks.refused import RefusedStaysOut
from tests.simulation.checks.resent import ResentKeepsItsId
from tests.simulation.checks.snapshots import SnapshotsGoForward
from tests.simulation.checks.statuses import StatusesAreLegal
from tests.simulation.record import Record

__all__ = ["Checker", "Rest", "Violation", "all_checkers"]


class _Recorded(Protocol):
    @property
    def record(self) -> Record: ...


def all_checkers(
    world: _Recorded,
    *,
    unfinished_seconds: float = 10.0,
    ahead: Callable[[str], bool] = lambda _: False,
) -> list[Checker]:
    """All of them; what everything else rests on comes first. `ahead`: a server whose wall clock is."""
    record = world.record
    return [
        EverythingRecovers(record),
        NothingAckedIsMissing(record),
        ReplicasConverge(record),
        WritesAreFenced(record),
        AcceptedIsLoadable(record),
        RefusedStaysOut(record),
        DeletedStaysDeleted(record),
        SnapshotsGoForward(record),
        PurgesAreSafe(record, unfinished_seconds=unfinished_seconds, ahead=ahead),
        StatusesAreLegal(record),
        StateWordsAreHonest(record),
        ResentKeepsItsId(record),
    ]

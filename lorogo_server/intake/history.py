"""Dated versions: the heads of a document over time, by the stream's clock.

Clients' clocks are not trusted: a version has the time at which JetStream stored the update. Versions are at
least a second apart and become sparser with age, so the list fits into a snapshot's metadata.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from lorogo_protocol.errors import MalformedMessage

_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
_DAY = 24 * _HOUR
FINEST_NS = _SECOND
_SEALED_MAX = 2000  # before the list is thinned between compactions
# (age limit, interval): one version per interval below that age
_STEPS = (
    (300 * _SECOND, FINEST_NS),
    (_HOUR, 15 * _SECOND),
    (_DAY, 600 * _SECOND),
    (7 * _DAY, _HOUR),
    (1 << 62, _DAY),
)


@dataclass(frozen=True, slots=True)
class DatedVersion:
    """The document's heads after all messages stored up to `time_ns`."""

    time_ns: int
    frontiers: bytes
    sequence: int


class History:
    """The dated versions of one document, oldest first."""

    def __init__(self, versions: list[DatedVersion] | None = None) -> None:
        self._sealed = list(versions or [])
        self._open_ns = 0  # time of the first update of the current version
        self._last_ns = 0  # time of its last update
        self._open_sequence = 0

    def before_apply(self, time_ns: int, frontiers: Callable[[], bytes]) -> DatedVersion | None:
        """Return the version that an update of that time ends, if any. Call it before the import."""
        if self._open_ns and time_ns - self._open_ns >= FINEST_NS:
            return DatedVersion(self._last_ns, frontiers(), self._open_sequence)
        return None

    def after_apply(self, ended: DatedVersion | None, time_ns: int, sequence: int) -> None:
        """Note an imported update; `ended` is the result of `before_apply`."""
        if ended is not None:
            self._sealed.append(ended)
            if len(self._sealed) > _SEALED_MAX:
                self.thin(time_ns)
        if not self._open_ns or time_ns - self._open_ns >= FINEST_NS:
            self._open_ns = time_ns
        self._last_ns = max(self._last_ns, time_ns)
        self._open_sequence = sequence

    def versions(self, frontiers: bytes) -> list[DatedVersion]:
        """Return all versions, oldest first; `frontiers` are the current heads."""
        if not self._open_ns:
            return list(self._sealed)
        return [*self._sealed, DatedVersion(self._last_ns, frontiers, self._open_sequence)]

    def at(self, time_ns: int, frontiers: bytes) -> DatedVersion | None:
        """Return the newest version that is not younger than `time_ns`."""
        found = None
        for version in self.versions(frontiers):
            if version.time_ns > time_ns:
                break
            found = version
        return found

    def thin(self, now_ns: int) -> None:
        """Drop versions that are too dense for their age."""
        newest: dict[tuple[int, int], DatedVersion] = {}  # of each interval
        for version in self._sealed:
            age = now_ns - version.time_ns
            step = next(step for limit, step in _STEPS if age < limit)
            newest[step, version.time_ns // step] = version
        self._sealed = sorted(newest.values(), key=lambda version: version.time_ns)

    def drop_before(self, time_ns: int) -> None:
        """Drop versions before `time_ns`, whose history was trimmed."""
        self._sealed = [version for version in self._sealed if version.time_ns >= time_ns]


def encode(versions: list[DatedVersion]) -> str:
    """Encode versions for a snapshot's metadata."""
    return json.dumps(
        [[v.time_ns, base64.b64encode(v.frontiers).decode(), v.sequence] for v in versions],
        separators=(",", ":"),
    )


def decode(text: str) -> list[DatedVersion]:
    """Decode versions from a snapshot's metadata. Raises MalformedMessage."""
    try:
        return [
            DatedVersion(int(time_ns), base64.b64decode(frontiers, validate=True), int(sequence))
            for time_ns, frontiers, sequence in json.loads(text)
        ]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MalformedMessage(f"the dated versions do not parse: {error}") from None

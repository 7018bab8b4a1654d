"""Log of a run, in order, for people: kept cheaply, formatted on request only."""

from collections.abc import Callable, Mapping
from typing import Any

import xxhash

from lorogo_protocol.errors import LorogoError
from lorogo_testing.process import CURRENT
from lorogo_testing.virtual_loop import BEGIN
from lorogo_transport.telemetry import logs

Line = tuple[float, str, str, Mapping[str, Any]]
_FACT_CHARS = 160
_LEVELS = ("debug", "info", "warning", "error", "exception")


class Trace:
    """Lines with the time and the process that they came from."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.lines: list[Line] = []
        self.crashes: list[str] = []  # unplanned exceptions

    def note(self, words: str, **facts: Any) -> None:
        process = CURRENT.get()
        self.lines.append((self._now(), "" if process is None else process.name, words, facts))

    def fingerprint(self) -> int:
        """Equal for equal histories of processes, events, times. A renamed event changes it; see `Facts`."""
        lines = "\n".join(f"{at:.9f} {who} {what}" for at, who, what, _ in self.lines)
        return xxhash.xxh64_intdigest(lines.encode())

    def words(self, last: int | None = None) -> list[str]:
        """The lines, ready to print."""
        return [_line(*line) for line in (self.lines if last is None else self.lines[-last:])]


class Facts:
    """A fingerprint of a run without words: times, processes, faults, stored records, ACKs and statuses.

    Log events and error messages are not in it, so that a change of names and texts can be shown to change
    nothing else.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hash = xxhash.xxh64()

    def add(self, kind: str, who: str, *values: bytes | str | float) -> None:
        self._hash.update(f"{self._now():.9f} {kind} {who} {values!r}\n".encode())

    def fingerprint(self) -> int:
        return self._hash.intdigest()


def _line(at: float, who: str, words: str, facts: Mapping[str, Any]) -> str:
    rest = " ".join(f"{name}={str(value)[:_FACT_CHARS]}" for name, value in facts.items())
    return f"{at - BEGIN:10.4f}  {who or '-':<10}  {words}  {rest}".rstrip()


def listen(current: Callable[[], Trace | None]) -> None:
    """Let everything that lorogo logs go into the trace of the run, and nowhere else. For good."""

    def telling(level: str) -> Callable[..., None]:
        def tell(self: logs.StructuredLogger, event: str, **facts: Any) -> None:
            trace = current()
            if trace is None:
                return
            error = facts.get("exc_info")
            if level == "exception" or (
                isinstance(error, BaseException) and not isinstance(error, LorogoError)
            ):
                trace.crashes.append(f"{event}: {error!r}")
            trace.note(event if level in ("debug", "info") else f"{level}: {event}", **self._bound, **facts)

        return tell

    for level in _LEVELS:
        setattr(logs.StructuredLogger, level, telling(level))

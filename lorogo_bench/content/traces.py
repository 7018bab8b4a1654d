"""What somebody has typed, as a workload asks for it: who starts the benchmark reads or makes it. Pure.

The real one is `automerge-paper` of the public collection josephg/editing-traces. Where it is not at hand,
one of the same size is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

NAME = "automerge-paper"
EDITS = 259_778  # that it has

Patch = tuple[int, int, str]  # where, how many characters go, what comes in their place


class EditTrace(Protocol):
    """Edits in order, and what they lead to."""

    @property
    def name(self) -> str: ...

    @property
    def end_content(self) -> str: ...

    @property
    def patches(self) -> Sequence[Patch]: ...


@dataclass(frozen=True, slots=True)
class TracePrefix:
    """The first edits of a trace."""

    name: str
    end_content: str
    patches: Sequence[Patch]


def first(trace: EditTrace, count: int | None) -> EditTrace:
    """So many edits of it at most (None: all), and the text that they lead to."""
    if count is None or count >= len(trace.patches):
        return trace
    patches = trace.patches[:count]
    text = ""
    for position, deleted, inserted in patches:
        text = text[:position] + inserted + text[position + deleted :]
    return TracePrefix(f"the first {count:,} edits of {trace.name}", text, patches)

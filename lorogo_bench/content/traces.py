"""Editing traces for workloads. The caller of the benchmark reads or generates them. Pure.

The real one is `automerge-paper` of the public collection josephg/editing-traces. Without it, a trace of the
same size is generated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

NAME = "automerge-paper"
EDITS = 259_778  # its number of edits

Patch = tuple[int, int, str]  # position, deleted characters, inserted text


class EditTrace(Protocol):
    """Edits in order, and the resulting text."""

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
    """Return the first edits of a trace (None: all), with the resulting text."""
    if count is None or count >= len(trace.patches):
        return trace
    patches = trace.patches[:count]
    text = ""
    for position, deleted, inserted in patches:
        text = text[:position] + inserted + text[position + deleted :]
    return TracePrefix(f"the first {count:,} edits of {trace.name}", text, patches)

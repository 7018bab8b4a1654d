"""A checker, and the violation that it raises when an invariant is broken."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from lorogo_client import Session
from lorogo_server.document.loading import Loaded
from tests.simulation.events import Event

Kinds = tuple[type[Event], ...]


class Violation(Exception):
    """An invariant is broken: which, how, and of which document."""

    def __init__(self, checker: str, words: str, document: str = "") -> None:
        super().__init__(f"{document}: {words}" if document else words)
        self.checker = checker
        self.document = document


class Someone(Protocol):
    """A client of the run."""

    @property
    def name(self) -> str: ...

    @property
    def sessions(self) -> Mapping[str, Session]: ...


class Rest(Protocol):
    """The world when all is healed and served."""

    @property
    def documents(self) -> Sequence[str]: ...

    @property
    def clients(self) -> Sequence[Someone]: ...

    async def fresh(self, document_id: str) -> Loaded:
        """Load a document as a server without state does now."""


class Checker(Protocol):
    """One invariant."""

    name: str
    wants: Kinds  # the events that it reads

    def look(self, event: Event) -> None:
        """Something happened. Raises Violation."""

    async def at_rest(self, world: Rest) -> None:
        """The run is over, and everything is whole. Raises Violation."""

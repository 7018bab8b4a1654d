"""Deliberate mistakes in lorogo's source text, to see whether the simulation finds them.

A mutation replaces one piece of one module's text while the module is imported; the files stay as they are.
Its old text must be there exactly once: whoever changes that code is told, and nothing is disarmed silently.
"""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tests.simulation.plan import ANYTHING, Wish

ROOT = Path(__file__).resolve().parents[2]


class NoSuchMutation(Exception):
    """Nothing has that name."""


class Disarmed(Exception):
    """The mutation cannot be made; names it, and says why."""

    def __init__(self, mutation: "Mutation", why: str) -> None:
        super().__init__(f"mutation {mutation.name!r}: {why}")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake: a plausible one, that leaves everything running while nothing goes wrong."""

    name: str
    module: str
    old: str
    new: str
    breaks: str  # the promise
    wish: Wish = ANYTHING  # what must go wrong for it to show
    begin: int = 0  # the first seed that is tried

    def applied_to(self, source: str) -> str:
        """The module's text with the mistake in it. Raises Disarmed."""
        found = source.count(self.old)
        if found != 1:
            raise Disarmed(self, f"its text is {found} times in {self.module}, and must be there once")
        if self.old == self.new:
            raise Disarmed(self, "it changes nothing")
        return source.replace(self.old, self.new)

    def check(self) -> None:
        """Raises Disarmed if it cannot be made. Imports nothing of lorogo."""
        path = ROOT.joinpath(*self.module.split(".")).with_suffix(".py")
        try:
            source = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Disarmed(self, f"{self.module} cannot be read: {error}") from None
        try:
            compile(self.applied_to(source), str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            raise Disarmed(self, f"{self.module} is no Python with it: {error}") from None


class _Loader(SourceFileLoader):
    """Compiles the mutated text; never what is cached, and caches nothing."""

    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        source = self._mutation.applied_to(self.get_data(self.path).decode())
        code = compile(source, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder(MetaPathFinder):
    """Finds one module, and gives it our loader."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutation.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(self._mutation, spec.origin)
            spec.cached = None
        return spec


def install(mutation: Mutation) -> None:
    """Make the mistake in this process, for good; before the module is imported. Raises Disarmed."""
    mutation.check()
    if mutation.module in sys.modules:
        raise Disarmed(mutation, f"{mutation.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutation))
    module = importlib.import_module(mutation.module)
    if not isinstance(module.__loader__, _Loader):
        raise Disarmed(mutation, f"{mutation.module} was imported by another loader")

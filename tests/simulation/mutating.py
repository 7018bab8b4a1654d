"""Deliberate mistakes in lorogo's code, to see whether the simulation finds them.

A mutation replaces statements, or one expression, in one function or class while its module is imported; the
files stay as they are. The function is found by its qualified name in any package of ours, and the code in it
by structure: a moved module and another layout change nothing. The code must be there exactly once, so that
a change of it stops the mutation loudly.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from textwrap import dedent
from types import CodeType, ModuleType

from tests.simulation.plan import ANYTHING, Wish

ROOT = Path(__file__).resolve().parents[2]
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NoSuchMutation(Exception):
    """Nothing has that name."""


class Disarmed(Exception):
    """The mutation cannot be made; has its name and the reason."""

    def __init__(self, mutation: "Mutation", why: str) -> None:
        super().__init__(f"mutation {mutation.name!r}: {why}")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mistake: a plausible one, that leaves everything running while nothing goes wrong."""

    name: str
    where: str  # the qualified name of a function, method or class: `Lease.confirm`
    old: str  # consecutive statements of it, or an expression
    new: str  # an expression for an expression; else any number of statements
    breaks: str  # the promise
    wish: Wish = ANYTHING  # what must go wrong for it to show
    begin: int = 0  # the first seed that is tried: the one that `--mutations` found it with

    def made(self, root: Path = ROOT) -> "Made":
        """The module with the mistake in it. Raises Disarmed; imports nothing of lorogo."""
        old, new = self._parsed(self.old), self._parsed(self.new)
        if not old:
            raise Disarmed(self, "it replaces nothing")
        if _same(old, new):
            raise Disarmed(self, "it changes nothing")
        places = []
        for path in _sources(root, self.where):
            tree = ast.parse(path.read_bytes())
            scopes = _named(tree, self.where.split("."))
            places += [(path, tree, place) for scope in scopes for place in _places(scope, old, new)]
        if len(places) != 1:
            found = ", ".join(str(path.relative_to(root)) for path, _, _ in places) or "nowhere"
            raise Disarmed(self, f"its code is {len(places)} times in {self.where}, not once: {found}")
        path, tree, place = places[0]
        place.put(new)
        try:
            code = compile(tree, str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise Disarmed(self, f"{self.where} is not Python with it: {error}") from None
        assert isinstance(code, CodeType)
        parts = path.relative_to(root).with_suffix("").parts
        return Made(self, path, ".".join(parts).removesuffix(".__init__"), code)

    def _parsed(self, text: str) -> list[ast.stmt]:
        try:
            return ast.parse(dedent(text)).body
        except SyntaxError as error:
            raise Disarmed(self, f"{text!r} is not Python: {error}") from None


@dataclass(frozen=True, slots=True)
class Made:
    """A mutation, and the compiled module that has it."""

    mutation: Mutation
    path: Path
    module: str
    code: CodeType


@dataclass(frozen=True, slots=True)
class _Statements:
    """Consecutive statements of a block."""

    block: list[ast.stmt]
    first: int
    count: int

    def put(self, new: list[ast.stmt]) -> None:
        _locate(new, self.block[self.first])
        self.block[self.first : self.first + self.count] = new
        if not self.block:
            self.block.append(ast.Pass(lineno=1, col_offset=0))


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression, as the field of a node or an element of one."""

    parent: ast.AST
    field: str
    index: int | None
    old: ast.expr

    def put(self, new: list[ast.stmt]) -> None:
        (statement,) = new
        assert isinstance(statement, ast.Expr)
        _locate([statement], self.old)
        if self.index is None:
            setattr(self.parent, self.field, statement.value)
        else:
            getattr(self.parent, self.field)[self.index] = statement.value


def _sources(root: Path, where: str) -> Iterator[Path]:
    """The files of our packages that may define it."""
    defined = [re.compile(rf"\b(?:def|class)\s+{re.escape(name)}\b") for name in where.split(".")]
    for path in sorted(root.glob("lorogo_*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        if all(name.search(text) for name in defined):
            yield path


def _named(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
    """Whatever has that qualified name inside the node, also below an `if` or a `try`."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from _named(child, names)
        elif child.name == names[0]:
            if names[1:]:
                yield from _named(child, names[1:])
            else:
                yield child


def _places(scope: ast.AST, old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[_Statements | _Expression]:
    """Every place in the scope that has the code."""
    if len(old) == len(new) == 1 and isinstance(old[0], ast.Expr) and isinstance(new[0], ast.Expr):
        wanted, kind = ast.dump(old[0].value), type(old[0].value)
        for parent in ast.walk(scope):
            for field, value in ast.iter_fields(parent):
                several = isinstance(value, list)
                for index, one in enumerate(value if several else [value]):
                    if type(one) is kind and ast.dump(one) == wanted:
                        yield _Expression(parent, field, index if several else None, one)
        return
    for parent in ast.walk(scope):
        for _, block in ast.iter_fields(parent):
            if isinstance(block, list):
                for first in range(len(block) - len(old) + 1):
                    if _same(block[first : first + len(old)], old):
                        yield _Statements(block, first, len(old))


def _same(some: list[ast.stmt], others: list[ast.stmt]) -> bool:
    return len(some) == len(others) and all(
        type(one) is type(other) and ast.dump(one) == ast.dump(other)
        for one, other in zip(some, others, strict=True)
    )


def _locate(new: list[ast.stmt], at: ast.stmt | ast.expr) -> None:
    """Tracebacks show the line of the code that was replaced."""
    for statement in new:
        for node in ast.walk(statement):
            ast.copy_location(node, at)


class _Loader(SourceFileLoader):
    """Gives the mutated code; never what is cached, and caches nothing."""

    def __init__(self, made: Made) -> None:
        super().__init__(made.module, str(made.path))
        self._made = made

    def get_code(self, fullname: str) -> CodeType:
        return self._made.code


class _Finder(MetaPathFinder):
    """Finds one module, and gives it our loader."""

    def __init__(self, made: Made) -> None:
        self._made = made

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._made.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(self._made)
            spec.cached = None
        return spec


def install(mutation: Mutation) -> None:
    """Make the mistake in this process, for good; before the module is imported. Raises Disarmed."""
    made = mutation.made()
    if made.module in sys.modules:
        raise Disarmed(mutation, f"{made.module} is imported already")
    sys.meta_path.insert(0, _Finder(made))
    module = importlib.import_module(made.module)
    if not isinstance(module.__loader__, _Loader):
        raise Disarmed(mutation, f"{made.module} was imported by another loader")

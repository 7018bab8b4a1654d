"""Rules of the tree that import-linter cannot see: what may be caught, and what a pure package may call.

The arrows between packages and between their chapters are contracts in pyproject.toml; `make test` runs
them with lint-imports.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(folder.name for folder in ROOT.glob("lorogo_*") if folder.is_dir())
CATCHES_EVERYTHING = {
    "lorogo_protocol/loro/crdt.py",  # loro raises bare BaseException; this file translates it
    "tests/fuzz/child.py",  # whatever comes out of a target is what it looks for
}
IMPORTS_NATS = {"lorogo_transport/nats/wire.py"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def names(node: ast.AST | None) -> Iterator[str]:
    """The last part of each name in `X`, `a.X` or `(X, a.Y)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Tuple(elts=parts):
            for part in parts:
                yield from names(part)
        case _:
            return


def catch_alls(tree: ast.AST) -> Iterator[int]:
    """The lines of `except:`, `except BaseException` and `suppress(BaseException)`."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=None):
                yield node.lineno
            case ast.ExceptHandler(type=caught) if "BaseException" in names(caught):
                yield node.lineno
            case ast.Call(func=function, args=arguments) if "suppress" in names(function):
                if any("BaseException" in names(argument) for argument in arguments):
                    yield node.lineno
            case _:
                pass


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each top-level package that the file imports, by statement or by `import_module("...")`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield alias.name.partition(".")[0], node.lineno
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0], node.lineno
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]) if {
                "import_module",
                "__import__",
            } & set(names(function)):
                yield module.partition(".")[0], node.lineno
            case _:
                pass


def impure_calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Calls that read a file or the clock without importing anything suspicious."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "input" | "print" as name)):
                yield name, node.lineno
            case ast.Call(func=ast.Attribute(attr="now" | "utcnow" | "today" as name, value=owner)) if {
                "datetime",
                "date",
            } & set(names(owner)):
                yield name, node.lineno
            case _:
                pass


def parse(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"), relative(path))


def test_only_the_crdt_module_catches_everything() -> None:
    """A catch-all swallows cancellation, so only the file that wraps loro may have one."""
    found = [
        f"{relative(path)}:{line}"
        for path in sources(*PACKAGES, "tests")
        if relative(path) not in CATCHES_EVERYTHING
        for line in catch_alls(parse(path))
    ]
    assert found == []


def test_only_the_connection_module_imports_nats() -> None:
    """One border per foreign thing: NATS is spoken in one file, lazy imports included."""
    found = [
        f"{relative(path)}:{line}"
        for path in sources(*PACKAGES)
        if relative(path) not in IMPORTS_NATS
        for name, line in imported(parse(path))
        if name == "nats"
    ]
    assert found == []


def test_the_protocol_opens_no_file_and_reads_no_clock() -> None:
    """The protocol is pure: the same arguments give the same result."""
    found = [
        f"{relative(path)}:{line} {name}"
        for path in sources("lorogo_protocol")
        for name, line in impure_calls(parse(path))
    ]
    assert found == []


@pytest.mark.parametrize("path", sorted(CATCHES_EVERYTHING | IMPORTS_NATS))
def test_every_exception_to_the_rules_is_a_file_that_exists(path: str) -> None:
    """An exception for a file that went away is removed with it."""
    assert (ROOT / path).is_file()


@pytest.mark.parametrize(
    ("code", "caught"),
    [
        ("try: f()\nexcept: pass", True),
        ("try: f()\nexcept BaseException: pass", True),
        ("try: f()\nexcept builtins.BaseException: pass", True),
        ("try: f()\nexcept (ValueError, BaseException): pass", True),
        ("try: f()\nexcept* BaseException: pass", True),
        ("with contextlib.suppress(BaseException): f()", True),
        ("try: f()\nexcept Exception: pass", False),
        ("try: f()\nexcept (OSError, TimeoutError): pass", False),
        ("with suppress(KeyError): f()", False),
        ("isinstance(error, BaseException)", False),
    ],
)
def test_a_catch_all_is_recognised_in_every_spelling(code: str, caught: bool) -> None:
    """The check above sees each way to catch everything, and nothing else."""
    assert bool(list(catch_alls(ast.parse(code)))) is caught


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import nats", {"nats"}),
        ("import nats.js.api as api", {"nats"}),
        ("from nats.errors import TimeoutError", {"nats"}),
        ("def f():\n    import nats", {"nats"}),
        ("importlib.import_module('nats.js')", {"nats"}),
        ("__import__('nats')", {"nats"}),
        ("from . import nats", set()),
        ("from lorogo_transport.nats import connection", {"lorogo_transport"}),
    ],
)
def test_an_import_is_recognised_in_every_spelling(code: str, found: set[str]) -> None:
    """The check above sees statements, late imports and imports by name."""
    assert {name for name, _ in imported(ast.parse(code))} == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("open('x')", {"open"}),
        ("datetime.now(UTC)", {"now"}),
        ("datetime.datetime.now()", {"now"}),
        ("date.today()", {"today"}),
        ("document.open()", set()),
        ("clock.now()", set()),
        ("datetime.fromtimestamp(now, UTC)", set()),
    ],
)
def test_an_impure_call_is_recognised(code: str, found: set[str]) -> None:
    """The check above sees files and clocks, not methods that share their names."""
    assert {name for name, _ in impure_calls(ast.parse(code))} == found

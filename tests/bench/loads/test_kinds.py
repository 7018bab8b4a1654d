"""Each kind of load has one class, and the workloads name only kinds that exist."""

import re
from pathlib import Path

import pytest

import lorogo_bench
from lorogo_bench.loads.__main__ import class_of

FOLDER = Path(lorogo_bench.__file__).parent
LOADS = FOLDER / "loads"
CLASS = re.compile(r"^class \w+Load:", re.MULTILINE)
KINDS = [
    ".".join(path.relative_to(LOADS).with_suffix("").parts)
    for path in sorted(LOADS.rglob("*.py"))
    if CLASS.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_names_its_class(kind: str) -> None:
    """The class has the noun of its module, and at least one command."""
    made = class_of(kind)
    assert made.__module__ == f"lorogo_bench.loads.{kind}"
    assert any(name.startswith("do_") for name in vars(made))


def test_workloads_start_kinds_that_exist() -> None:
    """Every literal kind in a call of `load(...)`."""
    sources = [path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.py") if LOADS not in path.parents]
    named = {kind for text in sources for kind in re.findall(r"\bload\(\s*\"([a-z.]+)\"", text)}
    assert named
    assert named <= set(KINDS)

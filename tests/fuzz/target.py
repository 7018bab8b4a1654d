"""A fuzz target: what is done with any bytes, where it begins, and what it may refuse.

`TARGET.check(data)` returns, whatever the bytes are; what it raises is a finding. A target's file is
`fuzz_NAME.py`; its seeds are written to `corpus/NAME.txt` by `python -m tests.fuzz.make_corpus`.
"""

import base64
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FOUND = HERE / "found"
_PREFIX = "fuzz_"


@dataclass(frozen=True, slots=True)
class Target:
    """One function under test, with its seeds and its expected errors."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    refusals: tuple[type[Exception], ...]  # typed, and so expected
    bytes_max: int = 4096

    def check(self, data: bytes) -> None:
        """Returns if the bytes were taken or refused as they should be."""
        try:
            self.run(data)
        except self.refusals:
            return


def names() -> list[str]:
    """Every target."""
    return sorted(path.stem.removeprefix(_PREFIX) for path in HERE.glob(f"{_PREFIX}*.py"))


def load(name: str) -> Target:
    """The target of that name."""
    if name not in names():
        raise SystemExit(f"there is no fuzz target {name!r}; there are {', '.join(names())}")
    target = importlib.import_module(f"tests.fuzz.{_PREFIX}{name}").TARGET
    assert isinstance(target, Target)
    return target


def corpus(name: str) -> list[bytes]:
    """The seeds that are kept in the repository: one to a line, base64."""
    lines = (CORPUS / f"{name}.txt").read_text(encoding="ascii").splitlines()
    return [base64.b64decode(line, validate=True) for line in lines]

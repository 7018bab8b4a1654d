"""The units of deploy/systemd, read."""

import re
from typing import NamedTuple

from tests.deploy.support import DEPLOY

UNITS = DEPLOY / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))


class Unit(NamedTuple):
    """The assignments of a unit, without its sections."""

    lines: list[str]

    @classmethod
    def of(cls, name: str) -> "Unit":
        text = (UNITS / name).read_text(encoding="utf-8")
        return cls([line for line in text.splitlines() if re.match(r"\w+=", line)])

    def all(self, key: str) -> list[str]:
        return [line.partition("=")[2] for line in self.lines if line.startswith(f"{key}=")]

    def one(self, key: str) -> str:
        (value,) = self.all(key)
        return value

    def settings(self) -> dict[str, str]:
        pairs = (pair.partition("=") for line in self.all("Environment") for pair in line.split())
        return {name: value for name, _, value in pairs}

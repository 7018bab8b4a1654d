"""The address at which a server answers health probes."""

import re
from dataclasses import dataclass
from typing import Final

from lorogo_cli.errors import CommandError

_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Host and port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse HOST:PORT, as in 0.0.0.0:8081 or [::]:8081. Raises ValueError."""
        found = _LISTEN.fullmatch(text)
        if found is None or not 0 <= int(found[2]) < 65536:
            raise ValueError("must be HOST:PORT, as in 127.0.0.1:8081")
        return cls(found[1].strip("[]"), int(found[2]))

    def of_worker(self, number: int) -> "ListenAddress":
        """Return the address of a worker: worker N adds N to the port."""
        if not self.port or not number:
            return self
        if self.port + number > 65535:
            raise CommandError(
                f"--health-listen: worker {number} would need port {self.port + number}, above 65535;"
                " choose a lower port"
            )
        return ListenAddress(self.host, self.port + number)

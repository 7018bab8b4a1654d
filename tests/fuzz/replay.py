"""One input once more, with its traceback: `python -m tests.fuzz.replay NAME FILE`."""

import sys
from pathlib import Path

from tests.fuzz.target import load


def main(arguments: list[str]) -> int:
    """0 if the input is taken or refused as it should be; what it raises is seen as it is."""
    if len(arguments) != 2:
        print("python -m tests.fuzz.replay NAME FILE", file=sys.stderr)
        return 2
    name, path = arguments
    data = Path(path).read_bytes()
    print(f"{name}: {len(data)} bytes, {data[:80]!r}{'...' if len(data) > 80 else ''}", flush=True)
    load(name).check(data)
    print("taken, or refused as it should be")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Write the seeds of every target to `corpus/`: `python -m tests.fuzz.make_corpus`."""

import base64

from tests.fuzz.target import CORPUS, load, names


def lines(seeds: list[bytes]) -> str:
    """One seed to a line."""
    return "".join(base64.b64encode(seed).decode() + "\n" for seed in seeds)


def main() -> None:
    CORPUS.mkdir(exist_ok=True)
    for name in names():
        target = load(name)
        seeds = list(dict.fromkeys(target.seeds()))
        assert seeds, name
        assert all(0 < len(seed) <= target.bytes_max for seed in seeds), name
        (CORPUS / f"{name}.txt").write_text(lines(seeds), encoding="ascii")


if __name__ == "__main__":
    main()

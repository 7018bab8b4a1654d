"""Mutation without a guide: where atheris is missing, and in the ordinary tests."""

from collections.abc import Iterator, Sequence
from random import Random

_ODD = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"[",
    b"{",
    b'"',
    b"\r\n",
)


def mutated(seeds: Sequence[bytes], random: Random, bytes_max: int) -> Iterator[bytes]:
    """The seeds first, then changed ones without end."""
    assert seeds
    yield from seeds
    while True:
        data = bytearray(random.choice(seeds))
        for _ in range(1 << random.randrange(4)):
            _change(data, seeds, random)
        yield bytes(data[:bytes_max])


def _change(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.randrange(1, 17))
    match random.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << random.randrange(8)
        case 1 if at < len(data):
            data[at] = random.randrange(256)
        case 2:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        case 3:
            del data[at:end]
        case 4:
            data[at:at] = data[at:end] * random.choice((1, 1, 2, 64))
        case 5:
            data[at:end] = random.choice(_ODD)
        case 6:
            other = random.choice(seeds)
            start = random.randrange(len(other) + 1)
            data[at:] = other[start:]
        case _:
            del data[at:]

"""Decodes frontiers: Loro's Python bindings offer only their encoding."""

from loro import ID, Frontiers


def heads(frontiers: Frontiers) -> list[ID]:
    """Return the ids of the heads.

    The encoding is a count, then for each head its peer and its zigzag counter, all as varints.
    """
    numbers: list[int] = []
    value = shift = 0
    for byte in frontiers.encode():
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    count, *rest = numbers
    assert len(rest) == 2 * count
    return [ID(rest[i], (rest[i + 1] >> 1) ^ -(rest[i + 1] & 1)) for i in range(0, len(rest), 2)]


def ids(frontiers: Frontiers) -> set[tuple[int, int]]:
    """Return the heads as comparable (peer, counter) pairs."""
    return {(head.peer, head.counter) for head in heads(frontiers)}

"""The kinds of containers that an update changes, read from Loro's encoding without decoding the update.

    "loro" (4) | checksum (16) | mode (2) | blocks: length | counter, its length, lamport, its length, changes
    | header | meta | containers | ...          numbers are LEB128, each part has its length before it
    containers: count | of each: 4 | is root (1) | kind (1) | peer | key or counter

Loro shows the kinds only after an import, and how to import depends on them (docs/decisions/0004).
"""

_HEAD_BYTES = 22
_MODE = slice(20, 22)
_UPDATES = b"\x00\x04"
TREE, MOVABLE_LIST = 3, 4


def kinds(update: bytes) -> frozenset[int]:
    """The kinds in an update of Loro's present encoding; none for a snapshot or for other bytes.

    About 5 us for each block of some 4 KiB.
    """
    found: set[int] = set()
    if update[_MODE] != _UPDATES:
        return frozenset()
    at, end = _HEAD_BYTES, len(update)
    try:
        while at < end:
            size, at = _number(update, at)
            part = at
            for _ in range(5):
                _, part = _number(update, part)
            for _ in range(2):
                length, part = _number(update, part)
                part += length
            _, part = _number(update, part)
            count, part = _number(update, part)
            for _ in range(min(count, size)):
                found.add(update[part + 2])
                _, part = _number(update, part + 3)
                _, part = _number(update, part)
            at += size
    except IndexError:
        pass  # Loro says what is wrong with it
    return frozenset(found)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A LEB128 number, and where it ends."""
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value, shift = value & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7

"""The digest of an update: xxh64, seed 0, as an unsigned decimal number."""

import xxhash


def digest(payload: bytes) -> str:
    """What LORO_DIGEST says of these bytes."""
    return str(xxhash.xxh64_intdigest(payload))

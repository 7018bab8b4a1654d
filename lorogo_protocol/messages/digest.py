"""The digest of an update: xxh64, seed 0, as an unsigned decimal number."""

import xxhash


def digest(payload: bytes) -> str:
    """Return the value of LORO_DIGEST for a payload."""
    return str(xxhash.xxh64_intdigest(payload))

"""Nkey seeds: made, read, and never shown."""

import nkeys
import pytest

from lorogo_transport.auth import seeds
from lorogo_transport.auth.seeds import InvalidSeed, SeedSigner

SEED = seeds.new_seed(seeds.USER, bytes(range(32)))


def test_a_seed_signs_as_its_public_key() -> None:
    """NATS's own package takes the signature."""
    signer = SeedSigner(SEED, seeds.USER, "the seed")
    assert SEED.startswith("SU")
    assert signer.public_key.startswith("U")
    assert nkeys.from_seed(bytearray(SEED.encode())).verify(b"words", signer.sign(b"words"))
    assert seeds.public_of(SEED, seeds.USER, "it") == signer.public_key
    assert seeds.new_seed(seeds.ACCOUNT, bytes(32)).startswith("SA")


@pytest.mark.parametrize(
    "seed",
    [
        "",
        "SU",
        SEED[:-1],
        SEED + "A",
        SEED[:20] + ("A" if SEED[20] != "A" else "B") + SEED[21:],
        SEED.lower(),
        "SU" + "1" * 56,
        "SU" + "ä" * 56,
        seeds.new_seed(seeds.ACCOUNT, bytes(32)),
        seeds.public_of(SEED, seeds.USER, "it"),
    ],
)
def test_what_is_no_seed_is_refused_in_words_that_hide_it(seed: str) -> None:
    """Cut, changed by one letter, of another kind, or a public key."""
    with pytest.raises(InvalidSeed) as refusal:
        SeedSigner(seed, seeds.USER, "the seed of x")
    assert "the seed of x" in str(refusal.value)
    assert len(seed) < 8 or seed not in str(refusal.value)


def test_no_repr_shows_it() -> None:
    """Only the public key is there."""
    assert SEED not in repr(SeedSigner(SEED, seeds.USER, "it"))

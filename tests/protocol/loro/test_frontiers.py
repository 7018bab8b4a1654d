"""Encodings of frontiers."""

from hypothesis import given
from hypothesis import strategies as st
from loro import ID, Frontiers

from lorogo_protocol.loro.frontiers import heads, ids


@given(st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1), max_size=6))
def test_heads_are_read_off_the_frontiers(wanted: dict[int, int]) -> None:
    """Every id that went into the frontiers comes out, of any peer and any counter."""
    frontiers = Frontiers.from_ids([ID(peer, counter) for peer, counter in wanted.items()])
    assert {id_.peer: id_.counter for id_ in heads(frontiers)} == wanted
    assert ids(frontiers) == set(wanted.items())
    again = Frontiers.from_ids(heads(Frontiers.decode(frontiers.encode())))
    assert again.encode() == frontiers.encode()

"""Where a client stands in the owner's sequence, and when it knows that it missed something."""

import pytest

from lorogo_client.delivery.accepted import AcceptedChain, AcceptedUpdate


def taken(*steps: tuple[int, int], synced: int = 0) -> AcceptedChain:
    """After a sync, and updates as (sequence, previous)."""
    chain = AcceptedChain()
    chain.synced(synced)
    for sequence, previous in steps:
        arrived = AcceptedUpdate(f"l{sequence}", sequence, previous, 1, b"")
        assert chain.follows(arrived)
        chain.took(arrived)
    return chain


@pytest.mark.parametrize(
    ("chain", "head", "tail", "behind"),
    [
        (taken((2, 0)), 2, 0, False),
        (taken((2, 0)), 3, 0, True),
        (taken((2, 0)), 2, 1, True),  # 1 had waited for 2, and we have not heard of it
        (taken((2, 0), (1, 2)), 2, 1, False),
        (taken((2, 0), (1, 2), (3, 1)), 2, 1, False),  # an old renewal
        (taken(synced=2), 2, 1, False),  # a sync at 2 brings what waited for it
        (taken((3, 2), synced=2), 3, 1, True),
    ],
)
def test_a_renewal_tells_of_what_was_missed(chain: AcceptedChain, head: int, tail: int, behind: bool) -> None:
    """A head above ours, or our own head behind which something came that had waited."""
    assert chain.behind(head, tail) is behind

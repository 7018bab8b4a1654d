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
    ("chain", "head", "behind"),
    [
        (taken((2, 0)), 2, False),
        (taken((2, 0)), 3, True),
        (taken((2, 0), (3, 2)), 2, False),  # an old renewal
        (taken(synced=2), 2, False),
        (taken((3, 2), synced=2), 4, True),
        (taken((3, 9), synced=9), 4, True),  # the stream lost its end, so sequences repeat
    ],
)
def test_a_renewal_names_an_update_that_was_missed(chain: AcceptedChain, head: int, behind: bool) -> None:
    """The owner's head is above that of the client."""
    assert chain.behind(head) is behind

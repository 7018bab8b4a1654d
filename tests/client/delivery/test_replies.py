"""Updates on their way into the WAL."""

from lorogo_client.delivery.replies import bytes_per_second
from lorogo_protocol.limits import MIB, UNFINISHED_SECONDS, UPDATE_BYTES_MAX


def test_each_further_try_of_an_unconfirmed_update_is_slower() -> None:
    """Half of the rate before it, but never so slow that the owner forgets the update's first chunks."""
    rates = [bytes_per_second(attempt) for attempt in range(1, 100)]
    assert rates[:5] == [32 * MIB, 16 * MIB, 8 * MIB, 4 * MIB, 2 * MIB]
    assert set(rates[5:]) == {2 * MIB}
    assert UPDATE_BYTES_MAX / rates[-1] < UNFINISHED_SECONDS

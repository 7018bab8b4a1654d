"""A sender with many requests waits behind itself, and takes no place from other senders."""

import pytest

from lorogo_transport.auth.fair_queue import FairQueue, address_group


def _all(turns: FairQueue[str]) -> list[str]:
    return [turns.take() for _ in range(len(turns))]


def test_addresses_take_turns_and_users_behind_them() -> None:
    """One of each address, then the next of each; of one address one of each user."""
    turns: FairQueue[str] = FairQueue(100)
    for item in ("a1", "a2", "a3"):
        turns.put("10.0.0.1", "ann", item)
    turns.put("10.0.0.1", "bob", "b1")
    turns.put("10.0.0.2", "cy", "c1")
    assert _all(turns) == ["a1", "c1", "b1", "a2", "a3"]
    assert len(turns) == 0
    with pytest.raises(IndexError):
        turns.take()


def test_when_it_is_full_the_newest_of_the_greediest_goes() -> None:
    """Of the address with most waiting, and there of the user with most; it may be who just came."""
    turns: FairQueue[str] = FairQueue(4)
    for item in ("a1", "a2", "a3"):
        assert turns.put("10.0.0.1", "ann", item) is None
    assert turns.put("10.0.0.1", "bob", "b1") is None
    assert turns.put("10.0.0.1", "ann", "a4") == "a4"
    assert turns.put("10.0.0.2", "ann", "c1") == "a3"
    assert turns.put("10.0.0.1", "dan", "d1") == "a2"
    assert len(turns) == 4
    assert _all(turns) == ["a1", "c1", "b1", "d1"]


def test_what_is_one_too_many_of_equals_is_the_last() -> None:
    """A request does not displace a waiting one of a sender with equally many."""
    turns: FairQueue[str] = FairQueue(2)
    turns.put("10.0.0.1", "ann", "a")
    turns.put("10.0.0.2", "bob", "b")
    assert turns.put("10.0.0.3", "cy", "c") == "c"
    assert _all(turns) == ["a", "b"]


def test_a_64_bit_ipv6_prefix_is_one_address() -> None:
    """One IPv6 customer has 2^64 addresses; an IPv4 address is itself in every notation; names and empty
    texts stay unchanged.
    """
    assert (
        address_group("2001:db8::1") == address_group("2001:db8::ffff:2") != address_group("2001:db8:0:1::1")
    )
    assert address_group("::ffff:10.0.0.1") == address_group("10.0.0.1") != address_group("10.0.0.2")
    assert address_group("fe80::1%eth0") == address_group("fe80::2%eth1")
    assert (address_group("host"), address_group("")) == ("host", "")

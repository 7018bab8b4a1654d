"""Presence travels, vanishes, and survives whatever comes."""

import time
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro.ephemeral import PresenceStore


def test_presence_travels() -> None:
    """A newcomer gets the entry of each client from the merged state."""
    alice, owner, carol = PresenceStore(30), PresenceStore(30), PresenceStore(30)
    alice.store.set("alice", {"cursor": 3})
    owner.apply(alice.encode_all())
    carol.store.set("carol", "here")
    owner.apply(carol.store.encode("carol"))
    newcomer = PresenceStore(30)
    newcomer.apply(owner.encode_all())
    assert newcomer.states() == {"alice": {"cursor": 3}, "carol": "here"}


def test_presence_vanishes() -> None:
    """An entry without renewal disappears from the states and from the encoding for newcomers."""
    presence = PresenceStore(0.001)
    presence.store.set("alice", 1)
    deadline = time.monotonic() + 5
    while presence.states() and time.monotonic() < deadline:
        pass
    assert presence.states() == {}
    newcomer = PresenceStore(30)
    newcomer.apply(presence.encode_all())
    assert newcomer.states() == {}


@given(st.binary(max_size=80))
def test_random_presence_is_applied_or_refused(data: bytes) -> None:
    """Whatever comes as presence, the store goes on."""
    presence = PresenceStore(30)
    presence.store.set("me", 1)
    with suppress(CrdtError):
        presence.apply(data)
    assert presence.states().get("me") is not None
    newcomer = PresenceStore(30)
    newcomer.apply(presence.encode_all())

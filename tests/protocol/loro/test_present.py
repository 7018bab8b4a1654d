"""The presence of a document: merged, counted, bounded."""

import gc
import random
import time
import weakref

import pytest
from loro import EphemeralStore

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro.present import BoundedPresenceStore


def entry(key: str, value: object = "here") -> bytes:
    store = EphemeralStore(60_000)
    store.set(key, value)  # type: ignore[arg-type]
    return bytes(store.encode(key))


def removal(key: str) -> bytes:
    store = EphemeralStore(60_000)
    store.set(key, "x")
    store.delete(key)
    return bytes(store.encode(key))


def read(data: bytes) -> dict[str, object]:
    store = EphemeralStore(60_000)
    store.apply(data)
    return dict(store.get_all_states())


def test_the_oldest_entry_is_dropped_first() -> None:
    """A repeated entry counts as new."""
    gone: list[str] = []
    present = BoundedPresenceStore(60.0, bytes_max=1_000_000, entries_max=8, gone=gone.append)
    for number in range(8):
        present.apply(entry(f"k{number}"))
    time.sleep(0.003)
    present.apply(entry("k0", "again"))
    assert (len(present.states()), gone) == (8, [])
    present.apply(entry("k8"))
    assert set(present.states()) == {"k4", "k5", "k6", "k7", "k0", "k8"}
    assert set(gone) == {"k1", "k2", "k3"}


def test_marks_of_removed_entries_are_bounded() -> None:
    """Long keys that are set and removed leave nothing but room."""
    present = BoundedPresenceStore(60.0, bytes_max=10_000)
    present.apply(entry("stays"))
    for number in range(100):
        present.apply(removal(f"{number}" + "k" * 1_000))
        assert len(present.encode_all()) <= 10_000
    assert set(present.states()) == {"stays"}


def test_so_many_bytes_of_updates_sweep_the_marks() -> None:
    """Marks of removed entries are bounded without a reader as well."""
    present = BoundedPresenceStore(60.0, bytes_max=10_000)
    present.apply(entry("stays"))
    for number in range(100):
        present.apply(removal(f"{number}" + "k" * 1_000))
    with_marks = present._presence.encode_all()
    assert len(with_marks) < 20_000
    assert read(with_marks) == {"stays": "here"}


def test_an_entry_that_is_set_and_removed_between_two_counts_is_not_there() -> None:
    """Loro reports both events; the store decides."""
    gone: list[str] = []
    present = BoundedPresenceStore(60.0, gone=gone.append)
    present._presence.apply(entry("left"))
    present._presence.apply(entry("back"))
    for key in ("left", "back"):
        present._presence.store.delete(key)
    time.sleep(0.003)
    present.apply(entry("back", "again"))
    assert present.states() == {"back": "again"}
    assert (gone, present.size("left")) == (["left"], 0)
    assert present.bytes == present.size("back") == len(entry("back", "again"))


def test_an_expired_entry_is_dropped_without_a_read() -> None:
    """A sweep is enough."""
    gone: list[str] = []
    present = BoundedPresenceStore(0.05, gone=gone.append)
    present.apply(entry("k"))
    assert present.bytes > 0
    deadline = time.monotonic() + 10
    while present.bytes and time.monotonic() < deadline:
        present.sweep()
    assert (present.bytes, gone) == (0, ["k"])


def test_news_are_what_would_change() -> None:
    """A known entry is no change; the comparison changes nothing."""
    present = BoundedPresenceStore(60.0)
    known = entry("a")
    present.apply(known)
    time.sleep(0.003)
    other = entry("a", "longer than before")
    assert present.changed_entries([known]) == {}
    assert present.changed_entries([known, entry("b", None)]).keys() == {"b"}
    assert present.changed_entries([other]) == {"a": len(other)}
    assert present.states() == {"a": "here"}
    with pytest.raises(CrdtError):
        present.changed_entries([known, b"\xff" * 20])


@pytest.mark.parametrize("seed", range(10))
def test_the_account_is_always_right(seed: int) -> None:
    """Its bytes are those of its entries, and it is never above its bounds."""
    rng = random.Random(seed)
    gone: set[str] = set()
    present = BoundedPresenceStore(60.0, bytes_max=3_000, entries_max=30, gone=gone.add)
    for _ in range(300):
        key = f"k{rng.randrange(60)}"
        gone.discard(key)
        match rng.randrange(4):
            case 0:
                present.apply(removal(key))
            case 1:
                present.delete([key])
            case _:
                present.apply(entry(key, rng.choice([None, "x" * rng.randrange(500)])))
        here = read(present.encode_all())
        assert {key for key in (f"k{n}" for n in range(60)) if present.size(key)} == here.keys()
        assert present.bytes == sum(present.size(key) for key in here) <= 3_000
        assert len(here) <= 30
        assert not gone & here.keys()


def test_who_is_present_is_freed_with_its_document() -> None:
    """Loro's callback does not keep it: a server that opens documents all day would grow by each of them."""
    present = BoundedPresenceStore(30.0)
    found = weakref.ref(present)
    del present
    gc.collect()
    assert found() is None

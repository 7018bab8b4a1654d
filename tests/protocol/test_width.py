"""Limits of peers and changes in an update: Loro's import takes time in proportion to their product."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_protocol.errors import InvalidUpdate, TooManyPeers
from lorogo_protocol.limits import UPDATE_PEER_CHANGES_MAX, UPDATE_PEERS_MAX
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Applied, Replica, too_wide


def of_peers(peers: int, changes: int) -> LoroDoc:
    """A document to which so many peers made changes, by turns."""
    doc = LoroDoc()
    for number in range(changes):
        doc.peer_id = 1 + number % peers
        doc.get_map("m").insert("n", number)
        doc.commit()
    return doc


def updates(doc: LoroDoc) -> bytes:
    return bytes(doc.export(ExportMode.Updates(VersionVector())))


def edited() -> Replica:
    made = Replica(lazy=True)
    made.doc.peer_id = 10**6
    made.doc.get_map("m").insert("before", True)
    made.doc.commit()
    return made


WIDE = of_peers(UPDATE_PEERS_MAX + 1, UPDATE_PEERS_MAX + 1)
FULL = of_peers(UPDATE_PEERS_MAX, UPDATE_PEERS_MAX)


@pytest.mark.parametrize(
    ("payload", "into", "taken"),
    [
        (updates(FULL), Replica, True),
        (updates(FULL), edited, True),
        (updates(WIDE), Replica, False),
        (updates(WIDE), edited, False),
        (WIDE.export(ExportMode.Snapshot()), Replica, True),
        (WIDE.export(ExportMode.Snapshot()), edited, False),
        (WIDE.export(ExportMode.ShallowSnapshot(WIDE.oplog_frontiers)), Replica, True),
        (updates(WIDE), lambda: Replica.from_snapshot(WIDE.export(ExportMode.Snapshot())), True),
    ],
    ids=[
        "an update at the limit",
        "the same into a document with edits",
        "an update above it",
        "the same into a document with edits",
        "a snapshot is quick in an empty document",
        "and nowhere else",
        "so is a trimmed one",
        "what is all here is quick, too",
    ],
)
def test_an_update_of_too_many_peers_is_not_imported(
    payload: bytes, into: Callable[[], Replica], taken: bool
) -> None:
    """A foreign update is refused before Loro imports it; the error has the number of peers and the limit."""
    replica = into()
    before = replica.version()
    assert replica.takes(payload) is taken
    if taken:
        assert isinstance(replica.apply(payload, foreign=True), Applied)
    else:
        with pytest.raises(TooManyPeers, match="changes of 1001 peers, above the limit of 1000") as caught:
            replica.apply(payload, foreign=True)
        assert caught.value.code == "too-large"
        assert replica.version() == before


def test_a_snapshot_may_be_of_many_peers_and_an_update_in_its_place_may_not() -> None:
    """An update that begins at nothing makes a replica, too, but slowly."""
    snapshot = WIDE.export(ExportMode.Snapshot())
    assert Replica.from_snapshot(snapshot, foreign=True).value() == WIDE.get_deep_value()
    with pytest.raises(TooManyPeers):
        Replica.from_snapshot(updates(WIDE), foreign=True)


def test_what_a_server_accepted_is_imported_whatever_its_peers() -> None:
    """The limit is for what comes in: a client's copy and a restore take everything."""
    replica = Replica()
    assert isinstance(replica.apply(updates(WIDE)), Applied)
    assert replica.value() == WIDE.get_deep_value()


def test_few_peers_may_make_many_changes_and_many_peers_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the product that takes time."""
    monkeypatch.setattr(crdt, "UPDATE_PEERS_MAX", 10)
    monkeypatch.setattr(crdt, "UPDATE_PEER_CHANGES_MAX", 200)
    assert not too_wide(updates(of_peers(10, 20)))
    assert not too_wide(updates(of_peers(2, 100)))
    assert too_wide(updates(of_peers(10, 21)))
    with pytest.raises(TooManyPeers, match="the update has 21 changes, above the limit of 20 for 10 peers"):
        Replica().apply(updates(of_peers(10, 21)), foreign=True)
    assert UPDATE_PEERS_MAX**2 <= UPDATE_PEER_CHANGES_MAX


@given(st.binary(max_size=100))
def test_what_is_no_update_has_no_width(payload: bytes) -> None:
    """Bytes that do not decode are InvalidUpdate, here as everywhere."""
    with suppress(InvalidUpdate):
        assert not too_wide(payload)
    with suppress(InvalidUpdate):
        assert Replica().takes(payload)


class _Watched:
    """LoroDoc, as far as foreign bytes meet it; counts what is imported."""

    imported = 0
    decode_import_blob_meta = staticmethod(LoroDoc.decode_import_blob_meta)

    def detach(self) -> None:
        """Nothing is in it."""

    def import_(self, _: bytes) -> None:
        _Watched.imported += 1


@pytest.mark.parametrize(
    ("payload", "imported"),
    [(updates(WIDE), 0), (updates(FULL), 1), (WIDE.export(ExportMode.Snapshot()), 1)],
    ids=["too wide", "at the limit", "a snapshot, which an empty document takes"],
)
def test_what_every_server_refuses_for_its_width_is_not_decoded_further(
    monkeypatch: pytest.MonkeyPatch, payload: bytes, imported: int
) -> None:
    """The import would take seconds, also in the decode sandbox: the header is enough to refuse it."""
    monkeypatch.setattr(crdt, "LoroDoc", _Watched)
    monkeypatch.setattr(_Watched, "imported", 0)
    crdt.try_decoding(payload)
    assert _Watched.imported == imported


def test_what_is_all_here_and_too_wide_is_not_decoded_further_either() -> None:
    """Its content was never decoded: behind a header of known changes may be bytes that crash the process."""
    doc = SimpleNamespace(oplog_vv=WIDE.oplog_vv)  # nothing can be imported into it
    assert Replica(cast("LoroDoc", doc)).apply(updates(WIDE), foreign=True) == Applied(False)
    with pytest.raises(AttributeError):
        Replica(cast("LoroDoc", doc)).apply(updates(WIDE))

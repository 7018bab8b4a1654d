"""A replica's memory stays small for any input."""

from typing import cast

import pytest
from loro import ExportMode, ImportStatus, LoroDoc

from lorogo_protocol.loro.crdt import Applied, Replica

UNSETTLED_BYTES_MAX = 16 * 1024


class Watched:
    """A document that notes whether it was detached when something was imported."""

    def __init__(self, doc: LoroDoc) -> None:
        self.detached: list[bool] = []
        self._doc = doc

    def __getattr__(self, name: str) -> object:
        return getattr(self._doc, name)

    def import_(self, update: bytes) -> ImportStatus:
        self.detached.append(self._doc.is_detached())
        return self._doc.import_(update)


def written(doc: LoroDoc, text: str) -> bytes:
    """The update that appends to the text `body`."""
    before = doc.oplog_vv
    body = doc.get_text("body")
    body.insert(len(body), text)
    doc.commit()
    return doc.export(ExportMode.Updates(before))


@pytest.mark.parametrize("alone", [True, False])
def test_a_large_update_is_worked_out_at_once(alone: bool) -> None:
    """A lazy replica never puts a long run of text off: that would cost its square later.

    What one peer wrote comes in detached, to be worked out in steps; what several wrote does not.
    """
    writer, other, replica = LoroDoc(), LoroDoc(), Replica(lazy=True)
    small = written(writer, "small")
    assert replica.apply(small) == Applied(new=True)
    assert replica.doc.is_detached()  # put off, as a lazy replica does
    before = writer.oplog_vv
    if not alone:
        other.import_(small)
        writer.import_(written(other, "beside it"))
    written(writer, "x" * 100_000)
    large = writer.export(ExportMode.Updates(before))
    assert len(large) > UNSETTLED_BYTES_MAX
    watched = Watched(replica.doc)
    replica.doc = cast("LoroDoc", watched)
    assert replica.apply(large) == Applied(new=True)
    assert watched.detached == [alone]
    assert not replica.doc.is_detached()
    assert replica.doc.get_text("body").to_string() == writer.get_text("body").to_string()


@pytest.mark.parametrize("size", [1, 700, 4_000])
def test_what_waits_to_be_worked_out_is_small(size: int) -> None:
    """However many small updates come: never more than 16 KiB of them wait, and nothing is lost.

    An update of more than 5,000 operations does not wait.
    """
    writer, replica = LoroDoc(), Replica(lazy=True)
    waiting = most = 0
    for _ in range(2 + 100_000 // max(size, 500)):
        update = written(writer, "y" * size)
        replica.apply(update)
        waiting = waiting + len(update) if replica.doc.is_detached() else 0
        most = max(most, waiting)
        assert waiting < UNSETTLED_BYTES_MAX
    assert most > 0
    assert replica.value() == writer.get_deep_value()

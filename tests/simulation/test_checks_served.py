"""The checker of documents that are served without ACKed content."""

import random

import pytest

from lorogo_protocol.loro import crdt
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Starting
from tests.simulation import events as ev
from tests.simulation.checks.served import Served, ServedWhole
from tests.simulation.disk import SimStorage
from tests.simulation.platter import Kept, Platter
from tests.simulation.story import DOCUMENT, OTHER, SERVER, Story, Writer


class _Journal(Platter):
    """A platter that holds what a writer has written, if anything."""

    def __init__(self) -> None:
        super().__init__(SimStorage(random.Random(1)), "/data/journal/00")
        self.kept = Kept()

    def of(self, document: str) -> Kept:
        return self.kept


class _Recovering(Story):
    """The broker lost an ACKed update, and SERVER takes the document; the journal of `holder` has it."""

    def __init__(self, holder: str) -> None:
        super().__init__()
        self.platters = {SERVER: _Journal(), OTHER: _Journal()}
        self.memory: Served | None = Served({}, False)
        self.connections: dict[str, object | None] = {SERVER: 1, OTHER: 1}
        self.checkers = self.record.checkers = [ServedWhole(self.record, self.platters, self)]
        writer = Writer(1)
        update = writer.commit()
        (sequence,) = self.send(update, "one")
        self.ends: ev.Ends = crdt.counters(writer.doc.oplog_vv.encode())
        self.platters[holder].kept.reach(dict(self.ends))
        self.ack(update, "one", sequence, 1, holder)
        self.record.removed(subjects.WAL_STREAM, [self.wal[sequence]], "loss", "")
        self.token = self.status(SERVER, Starting("op", 0, 0), server=SERVER)

    def served(self, line: str, document: str) -> Served | None:
        assert (line, document) == (SERVER, DOCUMENT)
        return self.memory

    def connection(self, line: str) -> object | None:
        return self.connections[line]

    def come_up(self, seconds: float = 0.1) -> str:
        self.now += seconds
        self.up(SERVER, self.token)
        return self.broken


@pytest.mark.parametrize("holder", [SERVER, OTHER])
@pytest.mark.parametrize("whole", [True, False])
def test_up_without_acked_content(holder: str, whole: bool) -> None:
    """A document is UP with every ACKed update that its owner or a reachable server has journalled."""
    story = _Recovering(holder)
    story.memory = Served(story.ends if whole else {}, False)
    assert story.come_up() == ("" if whole else "served")


@pytest.mark.parametrize(("connection", "broken"), [(1, "served"), (None, ""), (2, "")])
def test_a_server_that_did_not_answer_all_the_time(connection: int | None, broken: str) -> None:
    """A journal counts as reachable if its server kept one connection from the taking to the UP."""
    story = _Recovering(OTHER)
    story.connections[OTHER] = connection
    assert story.come_up() == broken


@pytest.mark.parametrize(("seconds", "broken"), [(0.5, "served"), (2.0, "")])
def test_marked_incomplete(seconds: float, broken: str) -> None:
    """A document is UP without ACKed content only if it is marked, after others had time to answer."""
    story = _Recovering(OTHER)
    story.memory = Served({}, True)
    assert story.come_up(seconds) == broken


def test_not_loaded() -> None:
    """A document that is deleted, or not loaded, is not judged."""
    story = _Recovering(SERVER)
    story.memory = None
    assert story.come_up() == ""


def test_lost_since_it_was_taken() -> None:
    """An update that the broker lost after the document was taken is not judged at this UP."""
    story = _Recovering(SERVER)
    (sequence,) = story.send(Writer(2).commit(), "two")
    story.record.removed(subjects.WAL_STREAM, [story.wal[sequence]], "loss", "")
    assert story.come_up() == ""

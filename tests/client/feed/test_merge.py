"""What a feed gives of many journals: every update once, in order, whatever the servers went through."""

import base64
import math
import zlib

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from loro import ID, VersionVector

from lorogo_client.feed.items import Deleted, FeedItem, Gap, Restored, Update
from lorogo_client.feed.memory import FeedMemory
from lorogo_client.feed.merge import FeedMerge
from lorogo_client.feed.position import FeedPosition, FeedState, InvalidPosition
from lorogo_protocol.journal.pages import EVERYTHING, FeedPage, FeedStart, PageEntry
from lorogo_protocol.journal.records import (
    BaseRecord,
    DeletedRecord,
    ErasedRecord,
    UpdateRecord,
)
from tests.client.feed.model import World
from tests.journals import restored_record

DOCUMENTS = st.sampled_from(["d0", "d1"])
SERVERS = st.sampled_from(["s0", "s1", "s2"])


class Reader:
    """A subscriber: reads pages, takes items, goes away and comes back."""

    def __init__(self, world: World, start: FeedStart = EVERYTHING) -> None:
        self.world = world
        self.start = start
        self.merge = FeedMerge(FeedMemory(start))
        self.items: list[FeedItem] = []
        for server in world.servers:
            self.merge.source(server)

    def read(self, server: str, count: int) -> None:
        source = self.merge.source(server)
        asked = self.merge.barrier
        page = self.world.page(server, source.read, count, self.start)
        if page is not None and len(source.entries) < 10:
            self.merge.add(server, page, asked)

    def take(self, count: int) -> None:
        while count and (item := self.merge.take()) is not None:
            self.items.append(item)
            count -= 1

    def resume(self) -> None:
        """Only the text of the position survives."""
        state = FeedState(self.start, None, self.merge.positions(), self.merge.memory)
        again = FeedPosition.parse(str(FeedPosition.of(state))).state()
        self.merge = FeedMerge(again.memory, again.positions)

    def read_all(self) -> None:
        """Until nothing more comes, with every server there or given up."""
        for _ in range(1000):
            before = (len(self.items), self.merge.positions())
            self.merge.searched = self.merge.barrier
            for server, here in self.world.servers.items():
                self.merge.source(server).away = not here.up
                self.read(server, 5)
            self.take(1000)
            if before == (len(self.items), self.merge.positions()) and not self.merge.holding:
                return
        raise AssertionError("the feed stands still")


def check(reader: Reader, *, gaps: bool, lossless: bool) -> None:
    """What is promised of everything that a reader was given."""
    world = reader.world
    for document in world.documents:
        had: set[tuple[int, int]] = set()
        seen: set[str] = set()
        markers: list[str] = []
        for item in reader.items:
            if item.document != document:
                continue
            if isinstance(item, Deleted | Restored):
                markers.append(f"{type(item).__name__.lower()} {item.generation}")
                continue
            if isinstance(item, Gap):
                assert gaps, item
                had |= {(peer, at) for peer, first, end in item.missing for at in range(first, end)}
                continue
            assert isinstance(item, Update)
            sent = world.sent[item.log_id]
            assert item.log_id not in seen, "given twice"
            assert gaps or len(markers) == 2 * item.generation, "on the wrong side of a deletion"
            assert sent.needs <= had, "before what it builds on"
            seen.add(item.log_id)
            had |= sent.changes
        assert len(markers) == len(set(markers))
        assert gaps or markers == world.markers[document]
        accepted = {record.log_id for record in world.accepted[document]}
        assert seen <= accepted
        if not gaps:
            assert seen == accepted, "not every accepted update was given"
        owner = world.documents[document].owner
        if owner is not None and all(server.up for server in world.servers.values()):
            assert owner.has <= had, "the owner has what was never given, and no gap told of it"
        if lossless and not gaps:
            order = [
                item.log_id for item in reader.items if isinstance(item, Update) and item.document == document
            ]
            assert order == [one.log_id for one in world.accepted[document]], "another order of acceptance"


def check_late(reader: Reader, *, gaps: bool, lossless: bool) -> None:
    """A feed that began in the middle: what JetStream stored behind it, once, in order."""
    start = reader.start
    for document in reader.world.documents:
        items = [item for item in reader.items if item.document == document]
        names = [item.log_id for item in items if isinstance(item, Update)]
        assert len(names) == len(set(names))
        told = {
            (peer, at)
            for item in items
            if isinstance(item, Gap)
            for peer, first, end in item.missing
            for at in range(first, end)
        }
        behind = [
            record.log_id
            for record in reader.world.accepted[document]
            if (record.epoch, record.sequence) > (start.epoch, start.sequence)
        ]
        if lossless and not gaps:
            assert names == behind
            # one that waited for what it builds on, from before the beginning to behind it, may look missing
            assert not told & {change for name in behind for change in reader.world.sent[name].changes}


class Journals(RuleBasedStateMachine):
    """Servers and subscribers do whatever they can do, in any order; no server is lost for good."""

    outages = False

    @initialize()
    def begin(self) -> None:
        self.world = World(servers=3, documents=2)
        self.readers = [Reader(self.world), Reader(self.world)]
        self.late: Reader | None = None
        self.lossless = True
        self.was_down = False

    @rule(document=DOCUMENTS, peer=st.integers(1, 3), changes=st.integers(1, 3))
    def make(self, document: str, peer: int, changes: int) -> None:
        self.world.make(document, peer, changes)

    @rule(document=DOCUMENTS, which=st.integers(0, 5))
    def send(self, document: str, which: int) -> None:
        self.world.send(document, which)

    @rule(document=DOCUMENTS, peer=st.integers(1, 3))
    def edit(self, document: str, peer: int) -> None:
        self.world.make(document, peer, 1)
        self.world.send(document, -1)
        self.world.work(document, 1)

    @rule(document=DOCUMENTS, server=SERVERS, forgetful=st.booleans())
    def take_over(self, document: str, server: str, forgetful: bool) -> None:
        self.world.take_over(document, server, forgetful=forgetful)

    @rule(document=DOCUMENTS, server=SERVERS, peer=st.integers(1, 3), compact=st.booleans())
    def hand_over(self, document: str, server: str, peer: int, compact: bool) -> None:
        """What happens most: some edits, and the document goes to another server."""
        for _ in range(3):
            self.edit(document, peer)
        if compact:
            self.world.compact(document)
        self.world.take_over(document, server, forgetful=False)

    @rule(reader=st.integers(0, 1), server=SERVERS, count=st.integers(1, 6))
    def follow(self, reader: int, server: str, count: int) -> None:
        self.readers[reader].read(server, count)
        self.readers[reader].take(count)

    @rule(document=DOCUMENTS, count=st.integers(1, 4), zombie=st.booleans())
    def work(self, document: str, count: int, zombie: bool) -> None:
        self.world.work(document, count, zombie=zombie)

    @rule(document=DOCUMENTS)
    def compact(self, document: str) -> None:
        self.world.compact(document)

    @rule(document=DOCUMENTS, again=st.booleans())
    def delete(self, document: str, again: bool) -> None:
        self.world.delete(document)
        if again:
            self.world.delete(document)

    @rule(document=DOCUMENTS, count=st.integers(1, 3))
    def lose(self, document: str, count: int) -> None:
        self.world.lose(document, count)
        self.lossless = False

    @rule(reader=st.integers(0, 1), server=SERVERS, count=st.integers(1, 6))
    def read(self, reader: int, server: str, count: int) -> None:
        self.readers[reader].read(server, count)

    @rule(reader=st.integers(0, 1), count=st.integers(1, 6))
    def take(self, reader: int, count: int) -> None:
        self.readers[reader].take(count)

    @precondition(lambda self: self.late is None)
    @rule()
    def begin_late(self) -> None:
        """Somebody wants everything from now on."""
        self.late = Reader(self.world, FeedStart(self.world.epoch, self.world.sequence))

    @precondition(lambda self: self.late is not None)
    @rule(server=SERVERS, count=st.integers(1, 6), resume=st.booleans())
    def follow_late(self, server: str, count: int, resume: bool) -> None:
        assert self.late is not None
        self.late.read(server, count)
        self.late.take(count)
        if resume:
            self.late.resume()

    @rule(reader=st.integers(0, 1))
    def search(self, reader: int) -> None:
        merge = self.readers[reader].merge
        merge.searched = merge.barrier

    @rule(reader=st.integers(0, 1))
    def resume(self, reader: int) -> None:
        self.readers[reader].resume()

    @precondition(lambda self: self.outages)
    @rule(server=SERVERS)
    def fall(self, server: str) -> None:
        self.world.servers[server].up = False
        self.was_down = True
        for document in self.world.documents.values():
            if document.owner is not None and document.owner.server == server:
                document.owner = None
            if document.zombie is not None and document.zombie.server == server:
                document.zombie = None

    @precondition(lambda self: self.outages)
    @rule(server=SERVERS)
    def come_back(self, server: str) -> None:
        self.world.servers[server].up = True
        for reader in self.readers:
            reader.merge.source(server).away = False

    @precondition(lambda self: self.outages)
    @rule(reader=st.integers(0, 1), server=SERVERS)
    def give_up(self, reader: int, server: str) -> None:
        if not self.world.servers[server].up:
            self.readers[reader].merge.source(server).away = True

    @invariant()
    def nothing_twice(self) -> None:
        for reader in getattr(self, "readers", []):
            names = [item.log_id for item in reader.items if isinstance(item, Update)]
            assert len(names) == len(set(names))

    def teardown(self) -> None:
        if not hasattr(self, "readers"):
            return
        for number, document in enumerate(self.world.documents):  # somebody serves everything in the end
            for server in self.world.servers.values():
                server.up = True
            self.world.take_over(document, f"s{number}", forgetful=False)
        for reader in self.readers:
            reader.read_all()
            check(reader, gaps=self.was_down, lossless=self.lossless)
        if self.late is not None:
            self.late.read_all()
            check_late(self.late, gaps=self.was_down, lossless=self.lossless)


class JournalsWithOutages(Journals):
    """Servers go away with their journals, and some come back."""

    outages = True


def base(place: int, document: str, lease: int, changes: int) -> PageEntry:
    return PageEntry(place, 0, document, BaseRecord(1, changes, lease, 0, "", vector(1, changes), b"", b""))


def update(
    place: int, document: str, lease: int, first: int, *, log_id: str = "", spans: bool = True
) -> PageEntry:
    span = ((1, first, first + 1),) if spans else ()
    record = UpdateRecord(1, first + 1, log_id or f"{document}-{first}", "1", lease, 0, span, b"")
    return PageEntry(place, 0, document, record)


def vector(peer: int, end: int) -> bytes:
    made = VersionVector()
    made.set_end(ID(peer, end))
    return bytes(made.encode())


def taken(merge: FeedMerge) -> list[str]:
    """The names of what can be given now."""
    names = []
    while (item := merge.take()) is not None:
        names.append(item.log_id if isinstance(item, Update) else f"{type(item).__name__} {item.document}")
    return names


def test_two_journals_that_wait_for_each_other_go_on_by_lease() -> None:
    """Each begins with a base that needs what stands behind the other's: the lower lease goes first."""
    merge = FeedMerge(FeedMemory())
    one = (update(0, "x", 1, 0), base(1, "y", 4, 1), update(2, "y", 4, 1))
    two = (update(0, "y", 2, 0), base(1, "x", 3, 1), update(2, "x", 3, 1))
    merge.add("one", FeedPage(one[1:], "3:0:0", True), 0)
    merge.add("two", FeedPage(two[1:], "3:0:0", True), 0)
    assert taken(merge) == []
    assert merge.holding
    assert merge.barrier == 2
    merge.searched = 2
    assert taken(merge) == ["Gap x", "x-1"]  # its journal was not read to the end since: the other waits on
    merge.add("two", FeedPage((), "3:0:0", True), 2)
    assert taken(merge) == ["Gap y", "y-1"]


def test_a_held_journal_waits_for_an_answer_to_a_later_question() -> None:
    """What an answer says that was on its way before does not count; nor does a server not looked for."""
    merge = FeedMerge(FeedMemory())
    merge.add("old", FeedPage((), "", True), 0)
    merge.add("new", FeedPage((base(0, "x", 2, 1), update(1, "x", 2, 1)), "2:0:0", True), 0)
    assert taken(merge) == []
    merge.add("old", FeedPage((), "", True), 0)
    merge.searched = 1
    assert taken(merge) == []
    merge.add("old", FeedPage((update(0, "x", 1, 0),), "1:0:0", True), merge.barrier)
    assert taken(merge) == ["x-0", "x-1"]


def test_who_is_away_is_not_waited_for_and_comes_too_late() -> None:
    """A gap is told, and what the journal has when it is back is not given any more."""
    merge = FeedMerge(FeedMemory())
    merge.source("lost")
    merge.add("new", FeedPage((base(0, "x", 2, 2), update(1, "x", 2, 2)), "2:0:0", True), 0)
    assert taken(merge) == []
    merge.searched = 1
    assert taken(merge) == []
    merge.source("lost").away = True
    assert taken(merge) == ["Gap x", "x-2"]
    merge.add(
        "lost", FeedPage((update(0, "x", 1, 0), update(1, "x", 1, 1), update(2, "z", 1, 0)), "3:0:0", True), 1
    )
    assert taken(merge) == ["z-0"]


def test_a_feed_from_the_middle_takes_the_first_base_without_a_word() -> None:
    """It cannot know what came before it; from then on it knows what is missing."""
    merge = FeedMerge(FeedMemory(FeedStart(1, 5)))
    merge.add(
        "a", FeedPage((update(0, "x", 1, 7), base(1, "x", 2, 9), update(2, "x", 2, 9)), "3:0:0", True), 0
    )
    assert taken(merge) == ["x-7"]
    merge.searched = merge.barrier
    assert taken(merge) == ["x-9"]
    merge.add("a", FeedPage((base(3, "x", 3, 12), update(4, "x", 3, 12)), "5:0:0", True), 1)
    assert taken(merge) == []
    merge.searched = merge.barrier
    assert taken(merge) == ["Gap x", "x-12"]


def test_a_base_that_does_not_parse_stops_nothing() -> None:
    """What is missing shows in the updates behind it."""
    merge = FeedMerge(FeedMemory())
    broken = PageEntry(0, 0, "x", BaseRecord(1, 0, 1, 0, "", b"\xff\xff", b"", b""))
    merge.add("a", FeedPage((broken, update(1, "x", 1, 0)), "2:0:0", True), 0)
    assert taken(merge) == ["x-0"]


def test_a_hole_in_a_journal_is_a_gap() -> None:
    """Segments that expired or are damaged leave a peer's changes out: that is told, once."""
    merge = FeedMerge(FeedMemory())
    merge.add(
        "a", FeedPage((update(0, "x", 1, 0), update(5, "x", 1, 4), update(6, "x", 1, 5)), "7:0:0", True), 0
    )
    assert taken(merge) == ["x-0"]
    merge.searched = merge.barrier
    assert taken(merge) == ["Gap x", "x-4", "x-5"]


def test_updates_without_spans_are_known_by_name() -> None:
    """Loro could not list their changes; the same log id and digest is the same update."""
    merge = FeedMerge(FeedMemory())
    twice = [update(place, "x", 1, 0, log_id="odd", spans=False) for place in (0, 1)]
    merge.add("a", FeedPage(tuple(twice), "2:0:0", True), 0)
    assert taken(merge) == ["odd"]


def test_what_a_late_owner_accepted_of_a_deleted_document_is_passed_over() -> None:
    """Deleted, restored and erased are each told once, whoever's journal has them."""
    merge = FeedMerge(FeedMemory())
    told = (
        PageEntry(0, 0, "x", DeletedRecord("tombstone", (), 2, 0, 5)),
        update(1, "x", 1, 0),
        PageEntry(2, 0, "x", restored_record(3, 1)),
        PageEntry(3, 0, "x", ErasedRecord("erasure", (), 0, 0, 9)),
    )
    merge.add("a", FeedPage(told, "4:0:0", True), 0)
    merge.add("b", FeedPage(told, "4:0:0", True), 0)
    assert taken(merge) == ["Deleted x", "Restored x", "Erased x"]


def test_a_restoration_waits_for_the_deletion_in_another_journal() -> None:
    """What came before it may be there as well: it is given first."""
    merge = FeedMerge(FeedMemory())
    merge.add(
        "b",
        FeedPage(
            (PageEntry(0, 0, "x", restored_record(2, 1)),),
            "1:0:0",
            True,
        ),
        0,
    )
    assert taken(merge) == []
    merge.searched = merge.barrier
    before = (update(0, "x", 1, 0), PageEntry(1, 0, "x", DeletedRecord("tombstone", (), 1, 0, 5)))
    merge.add("a", FeedPage(before, "2:0:0", True), merge.barrier)
    assert taken(merge) == ["x-0", "Deleted x", "Restored x"]


def test_memory_is_bounded_and_says_so() -> None:
    """The document not heard of for longest is forgotten; nothing false is told of it then."""
    memory = FeedMemory(documents_max=2)
    merge = FeedMerge(memory)
    entries = [update(0, "x", 1, 0), update(1, "y", 1, 0), update(2, "z", 1, 0), update(3, "x", 1, 1)]
    merge.add("a", FeedPage(tuple(entries), "4:0:0", True), 0)
    assert taken(merge) == ["x-0", "y-0", "z-0", "x-1"]
    assert len(memory) == 2
    assert memory.forgot


@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=64), st.text("0123456789:", max_size=9)),
    st.binary(max_size=40),
)
def test_a_position_is_text_that_comes_back(positions: dict[str, str], junk: bytes) -> None:
    """Whatever it holds; and anything else is refused with a sentence."""
    state = FeedState(FeedStart(1, 2, 3), frozenset({"x"}), positions, FeedMemory())
    again = FeedPosition.parse(f" {FeedPosition.of(state)}\n").state()
    assert (again.start, again.documents, again.positions) == (state.start, state.documents, positions)
    text = "lf1-" + base64.urlsafe_b64encode(junk).decode()
    for wrong in (text, junk.hex(), str(FeedPosition.of(state))[:-6]):
        with pytest.raises(InvalidPosition):
            FeedPosition.parse(wrong)


def packed_position(start: object, rows: object) -> str:
    packed = msgpack.packb([start, None, {}, [False, rows]], use_bin_type=True)
    return "lf1-" + base64.urlsafe_b64encode(zlib.compress(packed)).decode()


@pytest.mark.parametrize("number", [math.inf, math.nan, 1e300, 1.0, "1", True, -1, None])
def test_a_position_holds_whole_numbers_that_can_be_kept_again(number: object) -> None:
    """Infinity was an error without a name, and 1e300 one when the position was written again."""
    good = ["doc", True, 0, 0, {7: 3}, [5]]
    assert FeedPosition.parse(packed_position([1, 2, 3], [good])).state().start == FeedStart(1, 2, 3)
    rows = [[*good[:place], number, *good[place + 1 :]] for place in (2, 3)]
    rows += [[*good[:4], {7: number}, []], [*good[:4], {}, [number]]]
    for wrong in (packed_position([1, number, 3], []), *(packed_position([1, 2, 3], [row]) for row in rows)):
        with pytest.raises(InvalidPosition):
            FeedPosition.parse(wrong)


@pytest.mark.parametrize(
    ("documents", "positions", "rows"),
    [
        ([], {}, []),
        (["a b"], {}, []),
        ([7], {}, []),
        ("doc", {}, []),
        ([f"d{number}" for number in range(10_001)], {}, []),
        (None, [], []),
        (None, {str(number): "" for number in range(10_001)}, []),
        (None, {"": ""}, []),
        (None, {"a.b": ""}, []),
        (None, {"a" * 65: ""}, []),
        (None, {7: ""}, []),
        (None, {"ab": 0}, []),
        (None, {"ab": "1" * 129}, []),
        (None, {}, {}),
        (None, {}, [["d" * 129, True, 0, 0, {}, []]]),
        (None, {}, [[7, True, 0, 0, {}, []]]),
        (None, {}, [["doc", True, 0, 0, {}, [1] * 65]]),
        (None, {}, [["doc", True, 0, 0, {}, []]] * 100_001),
    ],
)
def test_a_position_holds_no_more_than_a_feed_can_have(
    documents: object, positions: object, rows: object
) -> None:
    """It is anybody's text: names are names, and there are only so many of them."""
    packed = msgpack.packb([[1, 2, 3], documents, positions, [False, rows]], use_bin_type=True)
    with pytest.raises(InvalidPosition):
        FeedPosition.parse("lf1-" + base64.urlsafe_b64encode(zlib.compress(packed)).decode())


def test_only_journals_of_which_something_was_taken_are_named() -> None:
    """Whoever reads ahead for a thousand journals looks at these alone; each is named once."""
    merge = FeedMerge(FeedMemory(), {f"lost{number}": "" for number in range(1_000)})
    merge.add("a", FeedPage((update(0, "x", 1, 0), update(1, "x", 1, 1)), "2:0:0", True), 0)
    merge.add("b", FeedPage((update(0, "x", 1, 0),), "1:0:0", True), 0)  # passed over
    assert merge.moved() == set()
    assert merge.take() is not None
    assert merge.moved() == {"a"}
    assert taken(merge) == ["x-1"]
    assert merge.moved() == {"a", "b"}
    assert merge.moved() == set()


def test_a_busy_journal_does_not_keep_the_others_waiting() -> None:
    """They give in turns."""
    merge = FeedMerge(FeedMemory())
    for journal in ("a", "b"):
        page = FeedPage(tuple(update(place, journal, 1, place) for place in range(3)), "3:0:0", True)
        merge.add(journal, page, 0)
    assert taken(merge) == ["a-0", "b-0", "a-1", "b-1", "a-2", "b-2"]


SETTINGS = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJournals = Journals.TestCase
TestJournals.settings = SETTINGS
TestJournalsWithOutages = JournalsWithOutages.TestCase
TestJournalsWithOutages.settings = SETTINGS

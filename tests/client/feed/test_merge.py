"""What a feed gives of many journals: every update once, in order, whatever the servers went through."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lorogo_client.feed.items import FeedItem, Gap, Update
from lorogo_client.feed.memory import Memory
from lorogo_client.feed.merge import Merge
from lorogo_client.feed.position import FeedPosition, FeedState
from lorogo_protocol.pages import EVERYTHING
from tests.client.feed.model import World

DOCUMENTS = st.sampled_from(["d0", "d1"])
SERVERS = st.sampled_from(["s0", "s1", "s2"])


class Reader:
    """A subscriber: reads pages, takes items, goes away and comes back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.merge = Merge(Memory(whole=True))
        self.items: list[FeedItem] = []
        for server in world.servers:
            self.merge.source(server)

    def read(self, server: str, count: int) -> None:
        source = self.merge.source(server)
        asked = self.merge.barrier
        page = self.world.page(server, source.read, count)
        if page is not None and len(source.entries) < 10:
            self.merge.add(server, page, asked)

    def take(self, count: int) -> None:
        while count and (item := self.merge.take()) is not None:
            self.items.append(item)
            count -= 1

    def resume(self) -> None:
        """Only the text of the position survives."""
        state = FeedState(EVERYTHING, None, self.merge.positions(), self.merge.memory)
        again = FeedPosition.parse(str(FeedPosition.of(state))).state()
        self.merge = Merge(again.memory, again.positions)

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
        for item in reader.items:
            if item.document != document:
                continue
            if isinstance(item, Gap):
                assert gaps, item
                had |= {(peer, at) for peer, first, end in item.missing for at in range(first, end)}
                continue
            assert isinstance(item, Update)
            sent = world.sent[item.log_id]
            assert item.log_id not in seen, "given twice"
            assert sent.needs <= had, "before what it builds on"
            seen.add(item.log_id)
            had |= sent.changes
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


class Journals(RuleBasedStateMachine):
    """Servers and subscribers do whatever they can do, in any order; no server is lost for good."""

    outages = False

    @initialize()
    def begin(self) -> None:
        self.world = World(servers=3, documents=2)
        self.readers = [Reader(self.world), Reader(self.world)]
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

    @rule(document=DOCUMENTS, count=st.integers(1, 4), zombie=st.booleans())
    def work(self, document: str, count: int, zombie: bool) -> None:
        self.world.work(document, count, zombie=zombie)

    @rule(document=DOCUMENTS)
    def compact(self, document: str) -> None:
        self.world.compact(document)

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


class JournalsWithOutages(Journals):
    """Servers go away with their journals, and some come back."""

    outages = True


SETTINGS = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJournals = Journals.TestCase
TestJournals.settings = SETTINGS
TestJournalsWithOutages = JournalsWithOutages.TestCase
TestJournalsWithOutages.settings = SETTINGS

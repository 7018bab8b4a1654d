"""A server notes its loads on its disk: which documents it loads, and which of them failed."""

import asyncio
import random

import pytest

from lorogo_log import MemoryStorage, replace_file
from lorogo_protocol.lease import NO_FAILURES, Failures
from lorogo_protocol.limits import RETRIES_MAX
from lorogo_server.ownership.load_notes import LoadNotes, LoadRecord
from lorogo_transport.tasks import Tasks


class Disk:
    """A folder that processes open one after the other."""

    def __init__(self) -> None:
        self.directory = MemoryStorage().directory("data/journal", create=True)
        self.tasks = Tasks(lambda error: pytest.fail(str(error)))

    async def process(self, *loading: str) -> LoadNotes:
        """A process that begins these loads, and is killed when the next one is requested."""
        notes = LoadNotes()
        await notes.open(self.directory, self.tasks.spawn)
        for document_id in loading:
            await notes.begin(document_id, notes.failures(document_id))
        return notes


async def test_an_end_within_several_loads_counts_against_none() -> None:
    """Four kills of a server that loads two documents leave no failure."""
    disk = Disk()
    for _ in range(4):
        await disk.process("a", "b")
    notes = await disk.process()
    assert notes.failures("a") == notes.failures("b") == NO_FAILURES


@pytest.mark.parametrize(("ends", "failures"), [(1, 0), (2, 2), (3, 3), (4, 4)])
async def test_the_only_load_at_two_ends_of_a_process_has_failed(ends: int, failures: int) -> None:
    """One such end may be chance; from the second on each counts."""
    disk = Disk()
    for _ in range(ends):
        await disk.process("a")
    assert (await disk.process()).failures("a").count == failures


async def _reached(notes: LoadNotes, *names: str) -> list[str]:
    """Which of these documents are loaded when all of them ask in this order, and none ends."""
    asked = [asyncio.ensure_future(notes.begin(name, notes.failures(name))) for name in names]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    await notes.save()
    for task in asked:
        task.cancel()
    await asyncio.wait(asked)
    return sorted(notes._loading)


@pytest.mark.parametrize(("ends", "loaded"), [(3, ["a", "b", "c"]), (4, ["a"])])
async def test_after_several_shared_ends_a_document_is_loaded_alone(ends: int, loaded: list[str]) -> None:
    """No other load is in progress then; those that waited for it are not noted."""
    disk = Disk()
    for _ in range(ends):
        await disk.process("a", "b")
    assert await _reached(await disk.process(), "a", "b", "c") == loaded


async def test_a_document_that_is_loaded_alone_waits_for_the_loads_in_progress() -> None:
    """Loads that ask later wait behind it, so that it is not put off for ever."""
    disk = Disk()
    for _ in range(4):
        await disk.process("a", "b")
    notes = await disk.process("c")
    waiting = [asyncio.ensure_future(notes.begin(name, NO_FAILURES)) for name in ("a", "d")]
    for ended, loading in (("c", {"a"}), ("a", {"d"})):
        assert notes._loading == {ended}
        notes.end(ended)
        await waiting.pop(0)
        assert notes._loading == loading
    notes.end("d")
    await disk.tasks.idle()


async def test_documents_that_end_processes_together_fail_and_healthy_ones_do_not() -> None:
    """Two that end every process that loads them, and a healthy one beside them, in any order."""
    disk, rng = Disk(), random.Random(1)
    names, deadly, condemned = ["a", "b", "healthy"], {"a", "b"}, set[str]()
    processes = 0
    while not deadly <= condemned:
        processes += 1
        assert processes < 50
        notes = await disk.process()
        condemned |= {name for name in names if notes.failures(name).count > RETRIES_MAX}
        asked = [name for name in rng.sample(names, len(names)) if name not in condemned]
        loading = await _reached(notes, *asked)
        if loading == ["healthy"]:
            notes.end("healthy")
            notes.forget("healthy")
            await disk.tasks.idle()
    assert condemned == deadly


async def test_an_end_is_judged_once() -> None:
    """A process that loads nothing does not read the note of the one before again."""
    disk = Disk()
    await disk.process("a")
    for _ in range(3):
        await disk.process()
    assert (await disk.process()).failures("a").count == 0


async def test_a_load_that_ended_is_not_noted_any_more() -> None:
    """A kill after the load does not count against its document."""
    disk = Disk()
    for _ in range(4):
        notes = await disk.process("a", "b")
        notes.end("a")
        notes.end("b")
        await disk.tasks.idle()
    assert (await disk.process()).failures("a").count == 0


async def test_failures_survive_the_process() -> None:
    """With the trace of the last; a document that is UP is forgotten."""
    disk = Disk()
    notes = await disk.process("a")
    notes.failed("a", Failures(1, "trace"))
    notes.end("a")
    await disk.tasks.idle()
    notes = await disk.process()
    assert notes.failures("a") == Failures(1, "trace")
    notes.forget("a")
    await disk.tasks.idle()
    assert (await disk.process()).failures("a") == NO_FAILURES


async def test_failures_that_others_recorded_are_kept_with_the_note() -> None:
    """Lone ends come on top of the failures that the status named when the load began."""
    disk = Disk()
    for _ in range(2):
        await (await disk.process()).begin("a", Failures(2, "trace"))
    assert (await disk.process()).failures("a") == Failures(4, "trace")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"format": 2, "loading": ["a"], "records": {}}', b'{"format": 1, "loading": 7}'],
)
async def test_notes_that_cannot_be_read_are_none(content: bytes) -> None:
    """A power cut may leave anything; a healthy document is not given up for it."""
    disk = Disk()
    replace_file(disk.directory, "loads", content)
    assert (await disk.process()).failures("a") == NO_FAILURES


async def test_a_disk_that_takes_no_note_stops_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note is evidence for later; the load does not depend on it."""
    disk = Disk()
    notes = await disk.process()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("lorogo_server.ownership.load_notes.replace_file", full)
    await notes.begin("a", NO_FAILURES)
    notes.end("a")
    await disk.tasks.idle()


async def test_without_a_folder_failures_are_known_while_the_process_runs() -> None:
    """With durability `stream` there is no disk: a kill counts against no document."""
    notes = LoadNotes()
    await notes.begin("a", NO_FAILURES)
    notes.failed("a", Failures(1, "trace"))
    notes.end("a")
    assert notes.failures("a") == Failures(1, "trace")


async def test_records_are_bounded() -> None:
    """The oldest is dropped."""
    notes = LoadNotes()
    for number in range(10_001):
        notes.failed(f"d{number}", Failures(1, "trace"))
    assert notes.failures("d0") == NO_FAILURES
    assert notes.failures("d1") == notes.failures("d10000") == Failures(1, "trace")


def test_restarts_are_counted() -> None:
    """Each restart of the retry count waits longer than the one before."""
    notes = LoadNotes()
    assert [notes.restarted("a") for _ in range(3)] == [0, 1, 2]
    assert LoadRecord().with_lone_end() == LoadRecord(lone_ends=1)

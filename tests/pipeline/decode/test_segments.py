"""Segments of journals: found in every kind of place, read whole, with a report of unreadable parts."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lorogo_log.format.layout import SEGMENT_HEADER_BYTES
from lorogo_pipeline.decode.records import record_rows
from lorogo_pipeline.decode.segments import (
    FAIL,
    SKIP,
    JournalFilter,
    SegmentFacts,
    SegmentReading,
    find_segments,
    gaps,
)
from lorogo_pipeline.errors import BadOption, DamagedJournal
from lorogo_server.journal.archive import ArchiveError
from lorogo_server.recovery.restore_sources import NoSource
from tests.pipeline.journals import SECOND, START, Journal, Made, session


def by_fours(path: Path, updates: list[Made], *, segment_records: int = 0) -> Path:
    """A journal in which a frame has four records, and a segment so many; all of it sealed."""
    with Journal(path) as made:
        for start in range(0, len(updates), 4):
            if segment_records and start and start % segment_records == 0:
                made.seal()
            made.add(*updates[start : start + 4])
    return path


def as_after_a_crash(path: Path, updates: list[Made], to: Path) -> Path:
    """A copy of a journal that was never closed: its last segment is open."""
    with Journal(path) as made:
        for start in range(0, len(updates), 4):
            made.add(*updates[start : start + 4])
        shutil.copytree(path, to)
    return to


def read_segment(
    facts: SegmentFacts, wanted: JournalFilter | None = None, damaged: str = SKIP
) -> tuple[list[int], list[str]]:
    """The sequences that a segment gives, and its reported damage."""
    reading = SegmentReading(facts, wanted or JournalFilter(), damaged)
    found = [record.sequence for batch in reading.batches() for record in batch.records()]
    return found, reading.damage


def everything(*places: Path | str) -> tuple[list[int], list[str]]:
    found, damage = list[int](), list[str]()
    for facts in find_segments([str(place) for place in places]):
        some, wrong = read_segment(facts)
        found += sorted(some)
        damage += wrong
    return found, damage


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 0x40
    path.write_bytes(body)


def frame_starts(path: Path) -> list[int]:
    (facts,) = [one for one in find_segments([str(path.parent)]) if one.copies[0].name == path.name]
    return [batch.position for batch in SegmentReading(facts).batches()]


@pytest.fixture
def memory() -> Iterator[str]:
    """A place in memory that is empty again afterwards."""
    files = fsspec.filesystem("memory")
    yield "memory://segments-of-a-test"
    if files.exists("/segments-of-a-test"):
        files.rm("/segments-of-a-test", recursive=True)


# --- where there is nothing -----------------------------------------------------------------------


def test_no_place() -> None:
    """Without a place there is nothing to read: the error names the option."""
    with pytest.raises(BadOption, match="name a journal"):
        find_segments([])


def test_a_missing_path(tmp_path: Path) -> None:
    """A path that is not there is a mistake."""
    with pytest.raises(NoSource, match="is not a folder"):
        find_segments([str(tmp_path / "nowhere")])


def test_a_folder_without_a_journal(tmp_path: Path) -> None:
    """So is a folder that has nothing to do with journals."""
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(NoSource, match=r"there is no journal in .*: name a server's data folder"):
        find_segments([str(tmp_path)])


@pytest.mark.parametrize("below", ["journal", "data/worker-0/journal/00"])
def test_a_journal_that_is_still_empty(tmp_path: Path, below: str) -> None:
    """A journal without a record is no mistake: it has no segments."""
    (tmp_path / below).mkdir(parents=True)
    assert find_segments([str(tmp_path / below.split("/", maxsplit=1)[0])]) == []


def test_a_log_that_was_opened_and_closed(tmp_path: Path) -> None:
    """Nor is a log that was made and never written to."""
    with Journal(tmp_path / "log"):
        pass
    assert find_segments([str(tmp_path)]) == []


def test_an_empty_archive(memory: str) -> None:
    """An archive without journals is an error of one sentence."""
    with pytest.raises(NoSource, match="there is no journal in memory://"):
        find_segments([memory])


def test_a_url_without_a_driver() -> None:
    """The error for a protocol without a driver has the URL."""
    with pytest.raises(ArchiveError, match="gopher://old/journal cannot be used"):
        find_segments(["gopher://old/journal"])


# --- whole ones -----------------------------------------------------------------------------------


def test_sealed_segments_and_the_open_one(tmp_path: Path) -> None:
    """A sealed segment knows its last sequence and its times; the open end does not."""
    updates = session(2, 20)
    with Journal(tmp_path / "journal") as made:
        made.add(*updates[:12])
        made.seal()
        made.add(*updates[12:])
        sealed, still_open = find_segments([str(tmp_path)])
        assert (sealed.first_sequence, sealed.last_sequence, sealed.next_first) == (1, 12, 13)
        assert (sealed.first_time, sealed.last_time) == (START + SECOND, START + 12 * SECOND)
        assert sealed.sealed and not still_open.sealed and still_open.next_first == 0
        assert sealed.log == still_open.log and sealed.position != still_open.position
        assert read_segment(sealed) == (list(range(1, 13)), [])
        assert read_segment(still_open) == (list(range(13, 21)), [])


def test_a_log_that_was_opened_many_times(tmp_path: Path) -> None:
    """Each time a log is opened it gets an epoch; that has no records and does no harm."""
    updates = session(1, 9)
    for start in range(3):
        with Journal(tmp_path / "log") as made:
            made.add(*updates[3 * start : 3 * start + 3])
    rows = [
        batch.num_rows
        for facts in find_segments([str(tmp_path)])
        for batch in record_rows(SegmentReading(facts).batches(), facts.log, JournalFilter())
    ]
    assert sum(rows) == 9


def test_the_same_place_twice(tmp_path: Path) -> None:
    """A place that is named twice is read once."""
    by_fours(tmp_path / "journal" / "00", session(1, 8))
    assert everything(tmp_path, tmp_path / "journal", tmp_path) == (list(range(1, 9)), [])


# --- damage ---------------------------------------------------------------------------------------


def test_a_flipped_bit(tmp_path: Path) -> None:
    """One flipped bit costs the records of its frame; the rest is read, and the damage has its place."""
    path = by_fours(tmp_path / "log", session(2, 40))
    (segment,) = segments(path)
    flip(segment, frame_starts(segment)[3] + 200)
    found, damage = everything(path)
    assert found == [*range(1, 13), *range(17, 41)]
    assert len(damage) == 1 and segment.name in damage[0] and "checksum" in damage[0]


def test_fail_says_what_to_do(tmp_path: Path) -> None:
    """With `fail`, the error names the file to repair, and the option to read on without it."""
    path = by_fours(tmp_path / "log", session(2, 40))
    (segment,) = segments(path)
    flip(segment, frame_starts(segment)[3] + 200)
    (facts,) = find_segments([str(path)])
    with pytest.raises(DamagedJournal, match=rf"{segment.name}.*lorogo log repair.*--damaged skip"):
        read_segment(facts, damaged=FAIL)


@pytest.mark.parametrize("frame", [0, 9])
def test_the_first_and_the_last_frame(tmp_path: Path, frame: int) -> None:
    """Damage at the very beginning or the very end of a sealed segment is reported, too."""
    path = by_fours(tmp_path / "log", session(2, 40))
    (segment,) = segments(path)
    flip(segment, frame_starts(segment)[frame] + 150)
    found, damage = everything(path)
    lost = range(4 * frame + 1, 4 * frame + 5)
    assert found == [one for one in range(1, 41) if one not in lost] and len(damage) == 1


def test_a_damaged_index(tmp_path: Path) -> None:
    """Without its index a sealed segment is read from end to end: filters give the same records."""
    updates = session(3, 40)
    path = by_fours(tmp_path / "log", updates)
    (segment,) = segments(path)
    flip(segment, segment.stat().st_size - 140)
    (facts,) = find_segments([str(path)])
    found, damage = read_segment(facts, JournalFilter(keys=frozenset([b"doc-0001"])))
    assert set(found) >= {one.record.sequence for one in updates if one.document_id == "doc-0001"}
    assert damage == []


def test_the_last_segment_is_torn(tmp_path: Path) -> None:
    """The torn end of the last segment was still being written: the whole frames are read, and it is no
    damage.
    """
    path = as_after_a_crash(tmp_path / "alive", session(1, 40), tmp_path / "log")
    (segment,) = segments(path)
    with segment.open("r+b") as file:
        file.truncate(frame_starts(segment)[5] + 30)
    assert everything(path) == (list(range(1, 21)), [])


def test_a_middle_segment_is_cut(tmp_path: Path) -> None:
    """A segment with successors must be whole: the report has the missing records."""
    path = by_fours(tmp_path / "log", session(1, 48), segment_records=16)
    segment = segments(path)[1]
    with segment.open("r+b") as file:
        file.truncate(frame_starts(segment)[2] + 30)
    found, damage = everything(path)
    assert found == [*range(1, 25), *range(33, 49)]
    assert damage == [f"{segment} is truncated: records 25 to 32 are missing"]
    with pytest.raises(DamagedJournal, match="records 25 to 32"):
        read_segment(find_segments([str(path)])[1], damaged=FAIL)


def test_a_segment_whose_end_is_gone_but_no_record(tmp_path: Path) -> None:
    """A segment without its index and seal has all its records, and no reported damage."""
    path = by_fours(tmp_path / "log", session(1, 32), segment_records=16)
    segment = segments(path)[0]
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 8)
    assert not find_segments([str(path)])[0].sealed
    assert everything(path) == (list(range(1, 33)), [])


def test_a_missing_middle_segment(tmp_path: Path) -> None:
    """A segment that is gone, with one before and one behind it, is a gap."""
    path = by_fours(tmp_path / "log", session(1, 48), segment_records=16)
    segments(path)[1].unlink()
    found = find_segments([str(path)])
    assert gaps(found) == [f"{path}: records 17 to 32 are in no segment"]
    assert everything(path)[0] == [*range(1, 17), *range(33, 49)]


def test_old_segments_may_be_gone(tmp_path: Path) -> None:
    """A journal that begins late has expired, which is no gap."""
    path = by_fours(tmp_path / "log", session(1, 48), segment_records=16)
    segments(path)[0].unlink()
    assert gaps(find_segments([str(path)])) == []
    assert everything(path) == (list(range(17, 49)), [])


def test_a_damaged_header_in_the_middle(tmp_path: Path) -> None:
    """A damaged header costs no record, is reported, and is no gap: the neighbouring segments identify the
    log.
    """
    path = by_fours(tmp_path / "log", session(1, 48), segment_records=16)
    flip(segments(path)[1], 20)
    found = find_segments([str(path)])
    assert len({facts.log for facts in found}) == 1 and gaps(found) == []
    sequences, damage = everything(path)
    assert sequences == list(range(1, 49))
    assert len(damage) == 1 and segments(path)[1].name in damage[0]


def test_the_only_header_is_damaged(tmp_path: Path) -> None:
    """A single segment with a damaged header still gives its records."""
    path = by_fours(tmp_path / "log", session(1, 16))
    flip(segments(path)[0], 20)
    sequences, damage = everything(path)
    assert sequences == list(range(1, 17)) and len(damage) == 1


def test_a_file_of_zeros(tmp_path: Path) -> None:
    """A segment of zeros is reported with the records that it must have had."""
    path = by_fours(tmp_path / "log", session(1, 48), segment_records=16)
    segment = segments(path)[1]
    segment.write_bytes(bytes(segment.stat().st_size))
    sequences, damage = everything(path)
    assert sequences == [*range(1, 17), *range(33, 49)]
    assert "records 17 to 32 are missing" in damage[-1]


def test_two_logs_with_segments_of_one_name(tmp_path: Path) -> None:
    """Segments of two logs may have the same name: a damaged one is not taken for a copy of the other."""
    updates = session(2, 32)
    one = by_fours(tmp_path / "journal" / "00", updates[:16])
    other = by_fours(tmp_path / "journal" / "01", [updates[0], *updates[16:]])
    assert segments(one)[0].name == segments(other)[0].name
    flip(segments(one)[0], 20)
    sequences, damage = everything(tmp_path)
    assert sorted(sequences) == sorted([*range(1, 17), *range(1, 18)]) and len(damage) == 1


# --- several copies -------------------------------------------------------------------------------


def shipped(path: Path, memory: str) -> str:
    """A copy of a log in an archive in memory."""
    for segment in segments(path):
        with fsspec.open(f"{memory}/server/00/{segment.name}", "wb") as file:
            file.write(segment.read_bytes())
    return memory


@pytest.mark.parametrize("spoil", ["body", "header", "cut", "zeros"])
@pytest.mark.parametrize("where", ["folder", "file", "memory"])
def test_another_copy_makes_good(tmp_path: Path, memory: str, where: str, spoil: str) -> None:
    """Of a segment in two places one whole copy is enough: every record, each once, no damage."""
    path = by_fours(tmp_path / "log", session(2, 48), segment_records=16)
    match where:
        case "memory":
            place = shipped(path, memory)
        case _:
            shutil.copytree(path, tmp_path / "archive" / "server" / "00")
            place = f"{'file://' if where == 'file' else ''}{tmp_path / 'archive'}"
    hurt = segments(path)[1]
    match spoil:
        case "body":
            flip(hurt, frame_starts(hurt)[2] + 150)
        case "header":
            flip(hurt, 20)
        case "cut":
            with hurt.open("r+b") as file:
                file.truncate(SEGMENT_HEADER_BYTES + 700)
        case _:
            hurt.write_bytes(bytes(hurt.stat().st_size))
    assert len(find_segments([str(path), place])) == 3
    for places in ([str(path), place], [place, str(path)]):
        assert everything(*places) == (list(range(1, 49)), [])
    assert everything(path)[1], "alone it is damaged"


def test_the_only_header_is_damaged_and_a_copy_is_whole(tmp_path: Path) -> None:
    """A copy of a single segment with a damaged header is matched by its first bytes."""
    path = by_fours(tmp_path / "log", session(1, 16))
    shutil.copytree(path, tmp_path / "archive")
    flip(segments(path)[0], 20)
    assert everything(path, tmp_path / "archive") == (list(range(1, 17)), [])


def test_both_copies_are_damaged_in_the_same_place(tmp_path: Path) -> None:
    """Damage in the same place of all copies is reported for each of them."""
    path = by_fours(tmp_path / "log", session(1, 40))
    flip(segments(path)[0], frame_starts(segments(path)[0])[3] + 150)
    shutil.copytree(path, tmp_path / "archive")
    sequences, damage = everything(path, tmp_path / "archive")
    assert sequences == [*range(1, 13), *range(17, 41)] and len(damage) == 2


def test_two_copies_damaged_in_different_places(tmp_path: Path) -> None:
    """Together they have everything, each record once."""
    path = by_fours(tmp_path / "log", session(1, 40))
    shutil.copytree(path, tmp_path / "archive")
    starts = frame_starts(segments(path)[0])
    flip(segments(path)[0], starts[3] + 150)
    flip(segments(tmp_path / "archive")[0], starts[7] + 150)
    sequences, _ = everything(path, tmp_path / "archive")
    assert sorted(sequences) == list(range(1, 41))


def test_a_replica_that_has_more(tmp_path: Path) -> None:
    """Each copy of the open end may have records that the other lost; the size of a file proves nothing."""
    path = as_after_a_crash(tmp_path / "alive", session(1, 40), tmp_path / "replica")
    cut = tmp_path / "journal"
    shutil.copytree(path, cut)
    (segment,) = segments(cut)
    size, start = segment.stat().st_size, frame_starts(segment)[6]
    with segment.open("r+b") as file:
        file.truncate(start)
        file.truncate(size + 4096)
    assert everything(cut) == (list(range(1, 25)), [])
    assert everything(cut, path) == (list(range(1, 41)), [])


def test_a_replica_that_lags_behind(tmp_path: Path) -> None:
    """A copy that is still open where the journal has been sealed adds nothing and takes nothing."""
    path = as_after_a_crash(tmp_path / "journal", session(1, 40), tmp_path / "replica")
    (segment,) = segments(path)
    with segment.open("r+b") as file:
        file.truncate(frame_starts(segment)[6])
    (facts,) = find_segments([str(path), str(tmp_path / "journal")])
    assert facts.sealed and read_segment(facts) == (list(range(1, 41)), [])


# --- filters --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records whose times jump about, large enough for several blocks of an index, sealed and open."""
    path = tmp_path_factory.mktemp("mixed") / "log"
    updates = session(7, 200, step_ns=SECOND)
    with Journal(path) as made:
        for number, one in enumerate(updates):
            at = one.at_ns + (number * 37 % 23 - 11) * SECOND
            key = one.document_id.encode() if number % 29 else b""
            made.raw(key, bytes(2000), at)
            if number in {60, 130}:
                made.seal()
        shutil.copytree(path, path.with_name("open"))
    return path.with_name("open")


@given(
    keys=st.none() | st.frozensets(st.sampled_from([f"doc-{n:04d}".encode() for n in range(8)] + [b""])),
    since=st.none() | st.integers(-20, 230),
    until=st.none() | st.integers(-20, 230),
)
@settings(max_examples=120, deadline=None)
def test_filters_give_what_a_full_read_gives(
    mixed: Path, keys: frozenset[bytes] | None, since: int | None, until: int | None
) -> None:
    """For any keys and times, the index leads to exactly the records that match."""
    wanted = JournalFilter(
        keys,
        None if since is None else START + since * SECOND,
        None if until is None else START + until * SECOND,
    )
    found = find_segments([str(mixed)])
    everything_there = [
        (record.sequence, record.key, record.time)
        for facts in found
        for batch in SegmentReading(facts).batches()
        for record in batch.records()
    ]
    expected = [
        sequence
        for sequence, key, time in everything_there
        if (keys is None or key in keys)
        and (wanted.since_ns is None or time >= wanted.since_ns)
        and (wanted.until_ns is None or time <= wanted.until_ns)
    ]
    assert len(everything_there) == 200
    got = [
        sequence
        for facts in found
        if not wanted.misses(facts)
        for rows in record_rows(SegmentReading(facts, wanted).batches(), facts.log, wanted)
        for sequence in rows["log_sequence"].to_pylist()
    ]
    assert got == expected


def test_the_index_spares_reading(mixed: Path) -> None:
    """A key that stands in one block only is read from there."""
    sealed = find_segments([str(mixed)])[0]
    whole, _ = read_segment(sealed)
    some, _ = read_segment(sealed, JournalFilter(since_ns=START + 45 * SECOND))
    none, _ = read_segment(sealed, JournalFilter(keys=frozenset([b"nobody"])))
    assert none == [] and len(some) < len(whole)
    assert JournalFilter(since_ns=START + 100 * SECOND).misses(sealed)
    assert JournalFilter(until_ns=START - 100 * SECOND).misses(sealed)

"""The ledger: a hint that is never ahead, and believed only with its own journal."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lorogo_log import FileStorage
from lorogo_protocol.position import Position
from lorogo_server.journal import coverage
from lorogo_server.journal.coverage import NOTHING, CoverageEntry, JournalCoverage

IDS = (b"a" * 16, b"b" * 16)


def test_what_is_not_known_is_nothing() -> None:
    """Nothing covers nothing, not even the first sequence."""
    assert JournalCoverage(IDS).of("doc") == NOTHING
    assert not NOTHING.position.includes(Position(1, 1, 1))


POSITIONS = st.builds(Position, *[st.integers(0, 99)] * 3)


@given(st.dictionaries(st.text(max_size=10), st.builds(CoverageEntry, st.text(max_size=5), POSITIONS)))
def test_it_comes_back_as_it_was_written(entries: dict[str, CoverageEntry]) -> None:
    """Every entry is there again."""
    back = coverage.decode(JournalCoverage(IDS, entries).encode(), IDS)
    assert {name: back.of(name) for name in entries} == entries
    assert len(back) == len(entries)


def test_damage_and_strangers_are_not_believed(tmp_path: Path) -> None:
    """Every flipped bit and every truncation gives an empty ledger, as does another journal's."""
    good = JournalCoverage(IDS, {"doc": CoverageEntry("x", Position(1, 5))}).encode()
    for place in range(len(good)):
        assert len(coverage.decode(good[:place], IDS)) == 0
        bad = bytearray(good)
        bad[place] ^= 1
        assert len(coverage.decode(bytes(bad), IDS)) == 0
    assert len(coverage.decode(good, (b"c" * 16,))) == 0
    directory = FileStorage().directory(tmp_path, create=False)
    assert len(coverage.read(directory, IDS)) == 0
    coverage.write(directory, good)
    assert (tmp_path / "ledger").read_bytes() == good
    assert coverage.read(directory, IDS).of("doc") == CoverageEntry("x", Position(1, 5))


def test_forgetting_one_or_all() -> None:
    """After records were removed, a document, or everything, is not covered any more."""
    book = JournalCoverage(
        IDS, {"a": CoverageEntry("x", Position(1, 5)), "b": CoverageEntry("y", Position(1, 5))}
    )
    book.forget("a")
    assert (book.of("a"), book.of("b")) == (NOTHING, CoverageEntry("y", Position(1, 5)))
    book.forget()
    assert len(book) == 0

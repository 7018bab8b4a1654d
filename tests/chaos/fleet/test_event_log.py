"""What writers note: it is there when the call has returned, and a torn end does not matter."""

from pathlib import Path

from lorogo_chaos.fleet.event_log import EventLog, EventLogReader, read


def test_notes_are_there_at_once_and_can_be_followed(tmp_path: Path) -> None:
    """A reader sees each note when it was made, once; the writer need not close anything."""
    path = tmp_path / "notes"
    reading = EventLogReader(path)
    assert reading.more() == []
    notebook = EventLog(path, writer=2, life=3, stored=True)
    notebook.note("wrote", "a", 1)
    assert [(note.kind, note.document, note.number) for note in reading.more()] == [("wrote", "a", 1)]
    notebook.note("trouble", "a", 0, 'it "broke"\n')
    assert [note.words for note in reading.more()] == ['it "broke"\n']
    assert reading.more() == []
    notebook.close()
    life = read(path)
    assert life is not None
    assert (life.writer, life.life, life.stored, life.mark(7)) == (2, 3, True, "2.3.7")
    assert reading.life is not None
    assert life.notes == reading.life.notes


def test_a_torn_line_is_passed_over_until_it_is_whole(tmp_path: Path) -> None:
    """A kill may tear the last line: what it would have said was never said."""
    path = tmp_path / "notes"
    with EventLog(path, writer=0, life=1, stored=False) as notebook:
        notebook.note("wrote", "a", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    reading = EventLogReader(path)
    assert reading.more() == []
    with path.open("ab") as file:
        file.write(whole[-5:])
    assert [note.number for note in reading.more()] == [1]

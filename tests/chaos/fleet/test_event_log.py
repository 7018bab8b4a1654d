"""The writers' event logs: an event is on disk when the call returns, and a torn end does no harm."""

from pathlib import Path

from lorogo_chaos.fleet.event_log import EventLog, EventLogReader, read


def test_notes_are_there_at_once_and_can_be_followed(tmp_path: Path) -> None:
    """A reader sees each note when it was made, once; the writer need not close anything."""
    path = tmp_path / "notes"
    reading = EventLogReader(path)
    assert reading.read_new() == []
    notebook = EventLog(path, writer=2, incarnation=3, stored=True)
    notebook.record("wrote", "a", 1)
    assert [(event.kind, event.document, event.number) for event in reading.read_new()] == [("wrote", "a", 1)]
    notebook.record("trouble", "a", 0, 'it "broke"\n')
    assert [event.words for event in reading.read_new()] == ['it "broke"\n']
    assert reading.read_new() == []
    notebook.close()
    incarnation = read(path)
    assert incarnation is not None
    assert (incarnation.writer, incarnation.incarnation, incarnation.stored, incarnation.mark(7)) == (
        2,
        3,
        True,
        "2.3.7",
    )
    assert reading.incarnation is not None
    assert incarnation.events == reading.incarnation.events


def test_a_torn_line_is_passed_over_until_it_is_whole(tmp_path: Path) -> None:
    """A kill may tear the last line, which then counts as unwritten."""
    path = tmp_path / "notes"
    with EventLog(path, writer=0, incarnation=1, stored=False) as notebook:
        notebook.record("wrote", "a", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    reading = EventLogReader(path)
    assert reading.read_new() == []
    with path.open("ab") as file:
        file.write(whole[-5:])
    assert [event.number for event in reading.read_new()] == [1]

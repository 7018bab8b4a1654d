"""Documents out of a lake: whole or not there, whatever is in them and whatever they are called."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from loro import ExportMode, LoroDoc, VersionVector

from lorogo_pipeline.errors import BadOption
from lorogo_pipeline.jobs import export as exporting
from lorogo_pipeline.jobs.export import export, file_name, markdown
from lorogo_pipeline.pipeline import Pipeline, Settings, build
from lorogo_protocol.journal.records import DeletedRecord
from tests.pipeline.decode.test_replay import typed
from tests.pipeline.journals import SECOND, START, TERM, Journal, made, session, texts
from tests.pipeline.lakes import documents_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPDATES = session(4, 40)


@pytest.fixture(scope="module")
def pipeline(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Four documents, one of them deleted, one with a gap; current, and at a past time."""
    folder = tmp_path_factory.mktemp("export")
    _, (first, _, third) = typed("a", "b", "c")
    with Journal(folder / "journal") as path:
        path.add(*UPDATES, first, third)
        path.record("doc-0003", DeletedRecord("tombstone", (TERM,), 1, 0, START), START + 99 * SECOND)
    found = build(spark, Settings(str(folder / "lake"), (str(folder / "journal"),), buckets=2))
    found.ingest()
    found.materialise()
    found.materialise(as_of_ns=START + 20 * SECOND)
    return found


def live() -> dict[str, str]:
    return {**{k: v for k, v in texts(UPDATES).items() if k != "doc-0003"}, "doc": "a"}


def lines(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["document_id"] for row in rows}) == len(rows)
    return {row["document_id"]: row for row in rows}


def beside(path: Path) -> list[str]:
    return sorted(one.name for one in path.parent.iterdir())


# --- the three formats ----------------------------------------------------------------------------


def test_json_lines(pipeline: Pipeline, tmp_path: Path) -> None:
    """One line for each document, with its value and its version; deleted ones are counted and left out."""
    done = pipeline.export(tmp_path / "new" / "out.jsonl")
    assert (done.documents, done.deleted, done.incomplete) == (4, 1, 1)
    found = lines(tmp_path / "new" / "out.jsonl")
    assert {k: row["value"]["text"] for k, row in found.items()} == live()
    assert not found["doc"]["complete"] and "none of these journals" in found["doc"]["problem"]
    assert found["doc-0000"]["complete"] and found["doc-0000"]["version"]
    assert (
        done.bytes == (tmp_path / "new" / "out.jsonl").stat().st_size and done.to_json()["format"] == "jsonl"
    )


def test_parquet(pipeline: Pipeline, tmp_path: Path) -> None:
    """One Parquet file with all columns of the table, snapshots too."""
    done = pipeline.export(tmp_path / "out.parquet", format="parquet")
    rows = {row["document_id"]: row for row in pq.read_table(tmp_path / "out.parquet").to_pylist()}
    expected = documents_of(pipeline.settings.lake)
    assert done.documents == 4 and rows.keys() == live().keys()
    for document_id, row in rows.items():
        assert row == {k: v for k, v in expected[document_id].items() if k != "bucket"}
        again = LoroDoc()
        again.import_(row["snapshot"])
        assert again.get_text("text").to_string() == live()[document_id]


def test_a_folder_of_markdown(pipeline: Pipeline, tmp_path: Path) -> None:
    """One file for each document, its text as it is."""
    pipeline.export(tmp_path / "out", format="markdown")
    found = {path.stem: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert found.keys() == live().keys()
    for document_id, body in found.items():
        head, rest = body.removeprefix("---\n").split("\n---\n\n", 1)
        assert f"document: {document_id}\n" in head and rest == live()[document_id] + "\n"


def test_some_as_of_a_time(pipeline: Pipeline, tmp_path: Path) -> None:
    """Some documents, as they were."""
    wanted = ["doc-0000", "doc-0003", "nobody"]
    done = pipeline.export(tmp_path / "out.jsonl", as_of_ns=START + 20 * SECOND, documents=wanted)
    expected = {k: v for k, v in texts(UPDATES[:20]).items() if k in wanted}
    found = lines(tmp_path / "out.jsonl")
    assert {k: row["value"]["text"] for k, row in found.items()} == expected and done.documents == len(
        expected
    )
    assert found["doc-0000"]["as_of"].startswith("2026-11-06T21:20:20")


# --- whole or not there ---------------------------------------------------------------------------


@pytest.mark.parametrize("format_", exporting.FORMATS)
def test_a_write_that_fails(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    """A write that fails in the middle leaves nothing, and what was there before as it was."""
    out = tmp_path / "here" / "out"
    out.parent.mkdir()
    if format_ != "markdown":
        out.write_text("what was there")
    real = exporting._rows

    def failing(*args: Any, **options: Any) -> Any:
        yield from real(*args, **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "_rows", failing)
    with pytest.raises(BadOption, match=r"out cannot be written: No space left on device"):
        export(pipeline.lake(), out, format=format_)
    assert beside(out) == ([] if format_ == "markdown" else ["out"])
    if format_ != "markdown":
        assert out.read_text() == "what was there"


def test_an_interrupted_export(pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted, it leaves nothing either."""
    real = exporting._rows

    def stopped(*args: Any, **options: Any) -> Any:
        yield from real(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(exporting, "_rows", stopped)
    for format_ in exporting.FORMATS:
        with pytest.raises(KeyboardInterrupt):
            export(pipeline.lake(), tmp_path / "out", format=format_)
        assert beside(tmp_path / "out") == []


def test_nothing_is_seen_before_all_is_there(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file of that name exists while the export writes."""
    out, real, looked = tmp_path / "out", exporting._rows, []

    def watched(*args: Any, **options: Any) -> Any:
        for batch in real(*args, **options):
            yield batch
            looked.append(out.exists())

    monkeypatch.setattr(exporting, "_rows", watched)
    export(pipeline.lake(), out)
    assert looked == [False, False] and out.exists() and beside(out) == ["out"]


def test_targets_that_are_there(pipeline: Pipeline, tmp_path: Path) -> None:
    """A file is replaced, an empty folder filled; a folder with content is never overwritten."""
    lake = pipeline.lake()
    for format_ in ("jsonl", "parquet"):
        (tmp_path / format_).write_text("old")
        export(lake, tmp_path / format_, format=format_)
        assert (tmp_path / format_).stat().st_size > 100
        with pytest.raises(BadOption, match="is a folder: name a file"):
            export(lake, tmp_path, format=format_)
    (tmp_path / "empty").mkdir()
    export(lake, tmp_path / "empty", format="markdown")
    assert len(list((tmp_path / "empty").iterdir())) == 4
    for taken in (tmp_path / "empty", tmp_path / "jsonl"):
        with pytest.raises(BadOption, match="exists: name a new or an empty folder"):
            export(lake, taken, format="markdown")


def test_a_place_that_cannot_be(pipeline: Pipeline, tmp_path: Path) -> None:
    """A target below a file is an error."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadOption, match="cannot be written"):
        export(pipeline.lake(), tmp_path / "file" / "out.jsonl")
    with pytest.raises(BadOption, match="format is 'word'; it must be one of jsonl, markdown, parquet"):
        export(pipeline.lake(), tmp_path / "x", format="word")


# --- hostile content ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document_id",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "",
        ".hidden",
        "a/b",
        "a\\b",
        "nul\0",
        "line\nbreak",
        "ü" * 300,
        "x" * 500,
    ],
)
def test_names_that_lead_elsewhere(tmp_path: Path, document_id: str) -> None:
    """Whatever a journal's key is: the file is in the folder, visible, and can be written."""
    name = file_name(document_id)
    (tmp_path / name).write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert not name.startswith("..") and len(name) < 256


def test_names_of_documents_are_their_own() -> None:
    """An id that a server allows is the name of its file; different ids have different names."""
    assert file_name("doc-0_A=") == "doc-0_A=.md"
    odd = ["a/b", "a%2Fb", "a b", "..", "%2E.", "x" * 300, "x" * 301]
    assert len({file_name(one) for one in odd}) == len(odd)


def test_hostile_ids_end_to_end(spark: "SparkSession", tmp_path: Path) -> None:
    """A key that would be a path stays in the folder."""
    with Journal(tmp_path / "journal") as path:
        for number, document_id in enumerate(["../../escaped", "a\nb: c", "fine"], 1):
            _, (one,) = typed("hello")
            path.add(made(document_id, one.record.payload, START, sequence=number))
    pipeline = build(spark, Settings(str(tmp_path / "lake"), (str(tmp_path / "journal"),), buckets=1))
    pipeline.ingest()
    out = tmp_path / "deep" / "down" / "out"
    assert pipeline.export(out, format="markdown").documents == 3
    assert len(list(out.iterdir())) == 3 and not list(tmp_path.glob("*escaped*"))
    heads = [path.read_text().splitlines()[1] for path in sorted(out.iterdir())]
    assert heads == ['document: "../../escaped"', 'document: "a\\nb: c"', "document: fine"]


def row_of(doc: LoroDoc) -> dict[str, Any]:
    from lorogo_pipeline.decode.replay import ReplayOptions, document_row, replay_document  # noqa: PLC0415 - one helper
    from tests.pipeline.decode.test_replay import row  # noqa: PLC0415

    doc.commit()
    one = made("doc", doc.export(ExportMode.Updates(VersionVector())), START, sequence=1)
    replayed = replay_document("doc", [row(one)])
    assert replayed is not None
    return document_row(replayed, ReplayOptions(None, 1)) | {"as_of": _Moment()}


class _Moment:
    def isoformat(self) -> str:
        return "2026-11-06T21:20:00+00:00"


def test_backticks_and_structures() -> None:
    """Texts come as they are, lists of texts as lists, the rest as JSON in a fence that it does not end."""
    doc = LoroDoc()
    doc.get_text("body").insert(0, "a ```fence``` of its own\n---\n")
    doc.get_list("todo").push("one")
    doc.get_list("todo").push("two")
    doc.get_map("meta").insert("code", "````\n```\nx")
    doc.get_map("meta").insert("```", 1)
    found = markdown(row_of(doc))
    assert "## body\n\na ```fence``` of its own\n---\n" in found and "## todo\n\n- one\n- two\n" in found
    fence = "`" * 5
    inside = found.split(f"{fence}json\n", 1)[1].split(f"\n{fence}\n", 1)[0]
    assert json.loads(inside) == {"code": "````\n```\nx", "```": 1}


def test_an_empty_document() -> None:
    """A document with nothing in it is a head alone."""
    doc = LoroDoc()
    doc.get_text("text").insert(0, "x")
    doc.get_text("text").delete(0, 1)
    assert markdown(row_of(doc)).endswith("complete: true\n---\n")


def test_nothing_to_export(spark: "SparkSession", tmp_path: Path) -> None:
    """Of an empty lake there is an empty file, in each format."""
    pipeline = build(spark, Settings(str(tmp_path / "lake")))
    pipeline.lake(create=True)
    for format_ in exporting.FORMATS:
        assert pipeline.export(tmp_path / format_, format=format_).documents == 0
    assert (tmp_path / "jsonl").read_text() == "" and pq.read_table(tmp_path / "parquet").num_rows == 0
    assert list((tmp_path / "markdown").iterdir()) == []

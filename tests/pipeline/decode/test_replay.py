"""Updates replayed into documents: complete where the records allow it, else with the reason."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loro import ExportMode, LoroDoc, LoroList, LoroMap, LoroText, VersionVector

from lorogo_pipeline.decode import replay as replay_module
from lorogo_pipeline.decode.replay import (
    INPUT,
    DocumentReplay,
    ReplayOptions,
    ReplayRow,
    by_document,
    document_row,
    replay,
    replay_document,
)
from lorogo_pipeline.tables.schemas import DOCUMENTS
from lorogo_protocol.journal import records
from lorogo_protocol.journal.records import DeletedRecord, ErasedRecord, TermKind, TermRecord
from lorogo_protocol.messages.digest import digest
from tests.pipeline.journals import SECOND, START, TERM, Author, Made, made, session, texts

NOW = ReplayOptions(None, 8)


def row(one: Made, **other: Any) -> ReplayRow:
    """An update as the fold sees it."""
    record = one.record
    found = ReplayRow(
        kind="update",
        accepted_ns=one.at_ns,
        epoch=record.epoch,
        sequence=record.sequence,
        generation=record.generation,
        term=record.term,
        log_id=record.log_id,
        digest=record.digest,
        digest_ok=digest(record.payload) == record.digest,
        size=len(record.payload),
        spans=[{"peer": str(peer), "first": first, "end": end} for peer, first, end in record.spans],
        vector=None,
        payload=record.payload,
    )
    return found._replace(**other)


def fact(kind: str, at_ns: int, record: TermRecord | DeletedRecord | ErasedRecord) -> ReplayRow:
    """A record about terms as the fold sees it: its bytes are kept."""
    value = msgpack.packb(records.encode(record))
    generation = record.generation
    return ReplayRow(
        kind, at_ns, None, None, generation, None, None, None, None, len(value), None, None, value
    )


def base(doc: LoroDoc, at_ns: int, *, shallow: bool = False, content: bool = True) -> ReplayRow:
    mode = ExportMode.ShallowSnapshot(doc.oplog_frontiers) if shallow else ExportMode.Snapshot()
    body = doc.export(mode)
    kept = body if content else b""
    vector = doc.oplog_vv.encode()
    return ReplayRow("base", at_ns, 1, 0, 0, TERM, None, digest(body), True, len(kept), None, vector, kept)


def typed(*words: str, peer: int = 1) -> tuple[Author, list[Made]]:
    """An author who types, and an update of each word."""
    author = Author("doc", peer)
    found = [
        made("doc", author.type(word), START + number * SECOND, sequence=number)
        for number, word in enumerate(words, 1)
    ]
    return author, found


def text_of(replayed: DocumentReplay | None) -> str:
    assert replayed is not None and replayed.replica is not None
    return str(replayed.replica.settled().get_text("text").to_string())


def state_of(rows: list[ReplayRow], as_of_ns: int | None = None) -> dict[str, Any]:
    replayed = replay_document("doc", rows, as_of_ns)
    assert replayed is not None
    return document_row(replayed, ReplayOptions(as_of_ns, 8))


def batches(updates: list[Made], rows: int = 7) -> Iterator[pa.RecordBatch]:
    """Updates sorted by document, a few in each batch, in the fold's own form."""
    ordered = sorted(updates, key=lambda one: one.document_id)
    table = pa.Table.from_pylist(
        [{"document_id": one.document_id, **named(row(one))} for one in ordered], schema=INPUT
    )
    yield from table.to_batches(max_chunksize=rows)


def named(one: ReplayRow) -> dict[str, Any]:
    facts = one._asdict()
    return facts | {"bytes": facts.pop("size")}


# --- whole documents ------------------------------------------------------------------------------


def test_nothing() -> None:
    """Of nothing comes nothing."""
    assert list(replay([], NOW)) == [] and replay_document("doc", []) is None


def test_one_update() -> None:
    """One update is a document with all values of its row."""
    author, (one,) = typed("hello 🌍")
    found = state_of([row(one)])
    assert json.loads(found["json"]) == {"text": "hello 🌍"} and found["text"] == "hello 🌍"
    assert (found["chars"], found["updates"], found["update_bytes"]) == (7, 1, len(one.record.payload))
    assert found["complete"] and found["problem"] is None and found["state"] == "live" and found["latest"]
    assert found["first_at"] == found["last_at"] == found["as_of"] == one.at_ns // 1000
    assert found["version"] == [{"peer": "1", "end": 7}] and found["vector"] == author.doc.oplog_vv.encode()
    again = LoroDoc()
    again.import_(found["snapshot"])
    assert again.get_text("text").to_string() == "hello 🌍" and found["snapshot_bytes"] == len(
        found["snapshot"]
    )


def test_a_session_in_batches() -> None:
    """Many documents in many batches: each is what its updates make it, however they are cut."""
    updates = session(6, 120)
    for rows in (1, 7, 1000):
        (found,) = replay(batches(updates, rows), NOW)
        assert found.schema == DOCUMENTS
        found.validate(full=True)
        assert dict(zip(found["document_id"].to_pylist(), found["text"].to_pylist(), strict=True)) == texts(
            updates
        )


def test_batches_may_lack_columns() -> None:
    """A fold that needs no spans is not given any."""
    updates = session(2, 10)
    lean = (batch.drop_columns(["spans", "vector"]) for batch in batches(updates))
    (found,) = replay(lean, NOW)
    assert dict(zip(found["document_id"].to_pylist(), found["text"].to_pylist(), strict=True)) == texts(
        updates
    )


def test_one_document_in_memory() -> None:
    """A document is given as soon as the next begins: no more than one is held."""
    drawn: list[str] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in batches(session(5, 100), rows=4):
            drawn.extend(batch["document_id"].to_pylist())
            yield batch

    for document_id, rows in by_document(watched()):
        behind = set(drawn[drawn.index(document_id) + len(rows) :])
        assert len(behind) <= 1 and len(rows) == drawn.count(document_id)


def test_batches_of_documents_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are given a few at a time."""
    monkeypatch.setattr(replay_module, "_ROWS_OUT", 2)
    updates = session(5, 50)
    assert [batch.num_rows for batch in replay(batches(updates), NOW)] == [2, 2, 1]


def test_times_that_run_against_dependencies() -> None:
    """Updates whose times are in another order than what they build on give the same document."""
    _, updates = typed("a", "b", "c", "d")
    odd = [replace(one, at_ns=START - one.at_ns % (10 * SECOND)) for one in updates]
    found = state_of([row(one) for one in odd])
    assert found["text"] == "abcd" and found["complete"]


def test_a_document_of_the_editor() -> None:
    """Its text and its characters are what a reader sees; its JSON has the nodes and the authors, too."""
    doc = LoroDoc()
    root: Any = doc.get_map("doc")
    root.insert("nodeName", "doc")
    blocks = root.insert_container("children", LoroList())
    for place, (name, words) in enumerate([("heading", "Launch plan"), ("paragraph", "Ask Ben")]):
        block = blocks.insert_container(place, LoroMap())
        block.insert("nodeName", name)
        block.insert_container("attributes", LoroMap())
        block.insert_container("children", LoroList()).insert_container(0, LoroText()).insert(0, words)
    doc.get_map("people").insert("7", "Ana")
    doc.commit()
    update = made("doc", doc.export(ExportMode.Updates(VersionVector())), START, sequence=1)
    state = state_of([row(update)])
    assert (state["text"], state["chars"]) == ("Launch plan\nAsk Ben", 19)
    assert '"heading"' in state["json"] and '"Ana"' in state["json"]


def test_values_that_json_has_not() -> None:
    """Bytes and numbers that are none are written in a way that JSON has."""
    doc = LoroDoc()
    doc.get_map("m").insert("bytes", b"ab")
    doc.get_map("m").insert("infinite", float("inf"))
    doc.commit()
    payload = doc.export(ExportMode.Updates(LoroDoc().oplog_vv))
    found = state_of([row(made("doc", payload, START, sequence=1))])
    assert json.loads(found["json"]) == {"m": {"bytes": {"$bytes": "YWI="}, "infinite": "Infinity"}}


def test_too_deep() -> None:
    """A document that is nested too deep is incomplete with that reason, and breaks nothing."""
    doc = LoroDoc()
    inner: Any = doc.get_map("m")
    for _ in range(600):
        inner = inner.insert_container("in", LoroMap())
    doc.commit()
    payload = doc.export(ExportMode.Updates(LoroDoc().oplog_vv))
    found = state_of([row(made("doc", payload, START, sequence=1))])
    assert not found["complete"] and "nested deeper" in found["problem"] and found["json"] is None


# --- as of a time ---------------------------------------------------------------------------------


def test_as_of() -> None:
    """As of a time: what was accepted until then, that moment included."""
    _, updates = typed("a", "b", "c")
    rows = [row(one) for one in updates]
    assert replay_document("doc", rows, START) is None, "it was not there yet"
    assert state_of(rows, START + SECOND)["text"] == "a"
    assert state_of(rows, START + 2 * SECOND - 1)["text"] == "a"
    assert state_of(rows, START + 2 * SECOND)["text"] == "ab"
    late = state_of(rows, START + 99 * SECOND)
    assert late["text"] == "abc" and not late["latest"] and late["as_of"] == (START + 99 * SECOND) // 1000


# --- what is missing ------------------------------------------------------------------------------


def test_something_is_missing_for_ever() -> None:
    """An update without the changes that it builds on is left out, and the reason is given."""
    _, updates = typed("a", "b", "c")
    found = state_of([row(updates[0]), row(updates[2])])
    assert found["text"] == "a" and not found["complete"]
    assert found["problem"] == "it builds on changes that are in none of these journals (1)"


def test_it_does_not_decode() -> None:
    """Bytes that are no update cost themselves only."""
    _, updates = typed("a", "b")
    broken = row(updates[1], payload=b"nothing of Loro's", digest=digest(b"nothing of Loro's"))
    found = state_of([row(updates[0]), broken])
    assert found["text"] == "a" and "does not decode" in found["problem"] and not found["complete"]


def test_a_wrong_digest() -> None:
    """An update whose bytes are not what was accepted is not applied."""
    author, updates = typed("a")
    other = author.type("forged")
    found = state_of(
        [row(updates[0]), row(made("doc", other, START, sequence=9), digest="1", digest_ok=False)]
    )
    assert found["text"] == "a" and found["problem"] == "its bytes do not match its digest (1)"
    assert found["updates"] == 1


# --- snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shallow", [False, True])
def test_a_journal_that_begins_with_a_snapshot(shallow: bool) -> None:
    """A base with content stands for what came before it, whole or trimmed."""
    author, _ = typed("a", "b")
    start = base(author.doc, START, shallow=shallow)
    later = made("doc", author.type("c"), START + SECOND, sequence=3)
    found = state_of([start, row(later)])
    assert found["text"] == "abc" and found["complete"] and found["updates"] == 1
    assert state_of([start])["text"] == "ab"


def test_a_snapshot_that_the_journal_covers() -> None:
    """A base without content needs nothing if the updates before it are there."""
    author, updates = typed("a", "b")
    found = state_of([*map(row, updates), base(author.doc, START + 9 * SECOND, content=False)])
    assert found["text"] == "ab" and found["complete"] and found["updates"] == 2
    assert found["as_of"] == (START + 2 * SECOND) // 1000


def test_a_snapshot_that_is_not_here() -> None:
    """A document is incomplete, with the reason, if only another journal has the snapshot of its base."""
    author, _ = typed("a", "b")
    later = made("doc", author.type("c"), START + SECOND, sequence=3)
    found = state_of([base(author.doc, START, content=False), row(later)])
    assert (
        not found["complete"]
        and "the snapshot that the document was loaded from is not here" in found["problem"]
    )


# --- deleted, restored, erased --------------------------------------------------------------------


def test_deleted_and_restored() -> None:
    """A deleted document has a row without content; restored it is back, with a new generation."""
    _, updates = typed("a", "b")
    deletion = DeletedRecord("tombstone", (TERM,), 7, 0, START + 10 * SECOND)
    rows = [row(updates[0]), fact("deleted", START + 10 * SECOND, deletion)]
    gone = state_of(rows)
    assert (gone["state"], gone["json"], gone["chars"], gone["updates"]) == ("deleted", None, 0, 1)
    assert gone["complete"]
    back = [
        *rows,
        fact(
            "restored",
            START + 20 * SECOND,
            TermRecord("second", (TERM,), TermKind.RESTORED, ("tombstone",), 8, 1),
        ),
        row(updates[1], accepted_ns=START + 30 * SECOND, generation=1, term="second"),
    ]
    found = state_of(back)
    assert (found["state"], found["text"], found["generation"]) == ("live", "ab", 1)
    assert state_of(back, START + 5 * SECOND)["state"] == "live"
    assert state_of(back, START + 15 * SECOND)["state"] == "deleted"
    assert state_of(back, START + 20 * SECOND)["text"] == "a"
    later = DeletedRecord("later", ("second", TERM), 8, 1, START + 40 * SECOND)
    assert state_of([*back, fact("deleted", START + 40 * SECOND, later)])["state"] == "deleted"


def test_erased() -> None:
    """An erased document is not there, nor was it ever."""
    _, updates = typed("a")
    erasure = ErasedRecord("erasure", (TERM,), 7, 0, START + 10 * SECOND)
    rows = [row(updates[0]), fact("erased", START + 10 * SECOND, erasure)]
    assert replay_document("doc", rows) is None
    assert replay_document("doc", rows, START + 5 * SECOND) is None


# --- the quick way and the careful one ------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 40),
    peers=st.integers(1, 3),
    disorder=st.booleans(),
    as_of=st.none() | st.integers(0, 45),
)
@settings(max_examples=60, deadline=None)
def test_quickly_and_carefully(seed: int, count: int, peers: int, disorder: bool, as_of: int | None) -> None:
    """Both ways make the same of the same updates."""
    updates = session(1, count, seed=seed, peers=peers)
    rng = random.Random(seed)
    if disorder:
        updates = [replace(one, at_ns=one.at_ns + rng.randint(-5, 5) * SECOND) for one in updates]
    rows = [row(one) for one in rng.sample(updates, len(updates))]
    as_of_ns = None if as_of is None else START + as_of * SECOND
    quick = replay_document("doc", rows, as_of_ns)
    there = sorted(
        (one for one in rows if as_of_ns is None or one.accepted_ns <= as_of_ns), key=lambda one: one.order
    )
    if not there:
        assert quick is None
        return
    assert quick is not None
    careful = replay_module._rebuild("doc", there)
    options = ReplayOptions(as_of_ns, 8, snapshots=False)
    assert document_row(quick, options) == document_row(careful, options)

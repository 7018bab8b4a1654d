"""The differences that an audit finds in one document: every kind, both ways, and none."""

import json
import random
from dataclasses import replace

import pyarrow as pa
import pytest
from loro import ExportMode, LoroDoc

from lorogo_pipeline.audit import difference
from lorogo_pipeline.audit.comparison import JournalDocument, LiveDocument, LiveState, compare, judge, rows
from lorogo_pipeline.audit.difference import BadRecord, Difference, DifferenceKind, Severity
from lorogo_pipeline.decode import content
from lorogo_pipeline.tables.schemas import DOCUMENTS
from lorogo_protocol.loro import crdt
from lorogo_protocol.loro.crdt import Replica

HERE, ALICE, BOB = "minutes", 11, 22


def written(*words: str, peer: int = ALICE, on: LoroDoc | None = None) -> LoroDoc:
    """A document with these words, each in a commit of its own."""
    doc = LoroDoc() if on is None else on.fork()
    doc.peer_id = peer
    for word in words:
        body = doc.get_text("body")
        body.insert(len(body), word)
        doc.commit()
    return doc


def served(doc: LoroDoc, *, where: str = "server", generation: int = 0) -> LiveDocument:
    replica = Replica(doc)
    here = replica.version()
    return LiveDocument(HERE, LiveState.LIVE, generation, here.vector, here.frontiers, where, replica=replica)


def journalled(doc: LoroDoc, **other: object) -> JournalDocument:
    replica = Replica(doc.fork())
    value = content.read(replica)
    here = replica.version()
    made = JournalDocument(
        HERE,
        ends=crdt.counters(here.vector),
        frontiers=here.frontiers,
        content_hash=content.content_hash(value),
        json=content.canonical(value),
    )
    return replace(made, **other)  # type: ignore[arg-type]  # of a table


ONE = written("abc")
TWO = written("def", peer=BOB, on=ONE)
FORGED = written("abX")
EMPTY = LoroDoc()
GONE = LiveDocument(HERE, LiveState.DELETED)
ERASED = LiveDocument(HERE, LiveState.ERASED)
BROKEN = LiveDocument(HERE, LiveState.UNREADABLE, problem="its digest is another")
BAD = BadRecord("log1", "journal/00 at 7")
UNDECODABLE = BadRecord("log2", "journal/00 at 8", "Decode error")

SAME: list[tuple[str, JournalDocument | None, LiveDocument | None]] = [
    ("the same", journalled(TWO), served(TWO)),
    ("nothing anywhere", None, None),
    ("empty on both sides", journalled(EMPTY), served(EMPTY)),
    ("empty, and not journalled", None, served(EMPTY)),
    ("empty in the journals, not known", journalled(EMPTY), LiveDocument(HERE, LiveState.UNKNOWN)),
    ("deleted on both sides", journalled(ONE, state="deleted"), GONE),
    ("deleted, and the journals are gone", None, GONE),
    ("erased, and nothing is left", None, ERASED),
    ("erased on both sides", JournalDocument(HERE, "erased"), ERASED),
    ("restored on both sides", journalled(ONE, generation=2), served(ONE, generation=2)),
]

OTHER: list[tuple[str, JournalDocument | None, LiveDocument | None, list[DifferenceKind], str]] = [
    ("served less", journalled(TWO), served(ONE), [DifferenceKind.MISSING_ON_SERVER], "0..2 of peer 22"),
    ("served more", journalled(ONE), served(TWO), [DifferenceKind.MISSING_IN_JOURNAL], "0..2 of peer 22"),
    (
        "waiting",
        journalled(ONE),
        served(TWO, where="store"),
        [DifferenceKind.MISSING_IN_JOURNAL],
        "may be in the WAL",
    ),
    (
        "both have what the other lacks",
        journalled(TWO),
        served(written("ghi", peer=33, on=ONE)),
        [DifferenceKind.MISSING_ON_SERVER, DifferenceKind.MISSING_IN_JOURNAL],
        "of peer 22",
    ),
    (
        "one letter",
        journalled(FORGED),
        served(ONE),
        [DifferenceKind.CONTENT_DIFFERS],
        '$.body ("abX" in the journals',
    ),
    (
        "one letter, and served more",
        journalled(FORGED),
        served(TWO),
        [DifferenceKind.CONTENT_DIFFERS, DifferenceKind.MISSING_IN_JOURNAL],
        "at the same version",
    ),
    ("it has no owner", journalled(ONE), None, [DifferenceKind.UNKNOWN_DOCUMENT], "0..2 of peer 11"),
    (
        "the tombstone is lost",
        journalled(ONE, state="deleted"),
        LiveDocument(HERE, LiveState.UNKNOWN),
        [DifferenceKind.UNKNOWN_DOCUMENT],
        "its deletion",
    ),
    (
        "no journal",
        None,
        served(ONE),
        [DifferenceKind.UNJOURNALLED_DOCUMENT],
        "no journal here has records of it",
    ),
    ("deleted there", journalled(ONE), GONE, [DifferenceKind.DELETION_DIFFERS], "live in the journals"),
    (
        "lives again",
        journalled(ONE, state="deleted"),
        served(ONE),
        [DifferenceKind.DELETION_DIFFERS],
        "deleted in the journals (generation 0) and live",
    ),
    ("still here", journalled(ONE), ERASED, [DifferenceKind.DELETION_DIFFERS], "still hold its content"),
    (
        "erased here",
        JournalDocument(HERE, "erased"),
        served(ONE),
        [DifferenceKind.DELETION_DIFFERS],
        "erased in the journals",
    ),
    (
        "restored there",
        journalled(ONE),
        served(ONE, generation=1),
        [DifferenceKind.GENERATION_DIFFERS],
        "0 in the",
    ),
    (
        "restored here",
        journalled(ONE, generation=1),
        served(ONE),
        [DifferenceKind.GENERATION_DIFFERS],
        "1 in the",
    ),
    (
        "deleted twice",
        journalled(ONE, state="deleted", generation=1),
        GONE,
        [DifferenceKind.GENERATION_DIFFERS],
        "1 in the",
    ),
    (
        "a record was changed by hand",
        journalled(ONE, problem="1 update: its bytes do not match its digest", bad=(BAD,)),
        served(TWO),
        [DifferenceKind.BAD_DIGEST],
        "1 update does not match the digest: log1 in journal/00 at 7",
    ),
    (
        "two bad ones",
        journalled(ONE, bad=(BAD, UNDECODABLE, replace(UNDECODABLE, log_id="log3"))),
        served(ONE),
        [DifferenceKind.BAD_DIGEST, DifferenceKind.DOES_NOT_DECODE],
        "1 update does not match",
    ),
    (
        "does not decode",
        journalled(ONE, bad=(UNDECODABLE,)),
        served(ONE),
        [DifferenceKind.DOES_NOT_DECODE],
        "(Decode error)",
    ),
    (
        "a base is missing",
        journalled(ONE, problem="the snapshot is not here"),
        served(TWO),
        [DifferenceKind.NOT_READABLE],
        "the journals cannot provide all of it: the snapshot is not here; the server has 3 operations",
    ),
    (
        "nothing of it can be used, and it has no owner",
        JournalDocument(HERE, problem="it builds on changes that are in none of these journals (1)"),
        LiveDocument(HERE, LiveState.UNKNOWN),
        [DifferenceKind.NOT_READABLE],
        "the journals cannot provide all of it: it builds on changes",
    ),
    (
        "some of it can be used, and it has no owner",
        journalled(ONE, problem="the snapshot is not here"),
        None,
        [DifferenceKind.UNKNOWN_DOCUMENT, DifferenceKind.NOT_READABLE],
        "0..2 of peer 11",
    ),
    (
        "the server's is damaged",
        journalled(ONE),
        BROKEN,
        [DifferenceKind.NOT_READABLE],
        "its digest is another",
    ),
    (
        "damaged, no journal",
        None,
        BROKEN,
        [DifferenceKind.NOT_READABLE],
        "the server cannot provide all of it",
    ),
    (
        "damaged, and deleted here",
        journalled(ONE, state="deleted"),
        BROKEN,
        [DifferenceKind.NOT_READABLE],
        "its digest is another",
    ),
    (
        "servers gave up, and what is stored lacks something",
        journalled(TWO),
        replace(served(ONE, where="store"), problem="servers gave up"),
        [DifferenceKind.MISSING_ON_SERVER, DifferenceKind.NOT_READABLE],
        "0..2 of peer 22",
    ),
]


@pytest.mark.parametrize(("name", "replayed", "live"), SAME, ids=[case[0] for case in SAME])
def test_no_difference(name: str, replayed: JournalDocument | None, live: LiveDocument | None) -> None:
    """Documents that are equal, empty or deleted on both sides have no difference."""
    del name
    assert compare(replayed, live) == []
    assert judge(replayed, live).passing is False


@pytest.mark.parametrize(
    ("name", "replayed", "live", "kinds", "words"), OTHER, ids=[case[0] for case in OTHER]
)
def test_differences(
    name: str,
    replayed: JournalDocument | None,
    live: LiveDocument | None,
    kinds: list[DifferenceKind],
    words: str,
) -> None:
    """Each fault is one difference of its own kind, with a sentence and with facts."""
    del name
    found = compare(replayed, live)
    assert [one.kind for one in found] == kinds
    assert words in found[0].sentence
    for one in found:
        facts = json.loads(json.dumps(one.to_json()))
        assert facts["document"] == HERE
        assert facts["kind"] in one.kind
        assert facts["sentence"].startswith(f"{HERE}: ")
        assert facts["severity"] in {"wrong", "uncovered", "unsure"}


def test_what_is_missing_is_named_by_peer_and_counters() -> None:
    """Programs get the operations as spans, with peers as text."""
    [less] = compare(journalled(TWO), served(ONE))
    assert less.to_json()["missing"] == [{"peer": "22", "first": 0, "end": 3}]
    longer = written("!", on=ONE)
    [more] = compare(journalled(ONE), served(longer))
    assert more.to_json()["missing"] == [{"peer": "11", "first": 3, "end": 4}]
    [bad] = compare(journalled(ONE, bad=(BAD,)), served(longer))
    assert bad.to_json()["missing"] == more.to_json()["missing"]


def test_a_server_that_went_on_is_compared_at_the_journals_version() -> None:
    """Updates that the server accepted after the journals were read make no difference."""
    verdict = judge(journalled(ONE), served(TWO), before=crdt.counters(served(ONE).vector))
    assert verdict.differences == ()
    assert verdict.uncompared == ""
    [one] = judge(journalled(FORGED), served(TWO), before={ALICE: 3}).differences
    assert one.kind is DifferenceKind.CONTENT_DIFFERS
    assert (one.to_json()["journals"], one.to_json()["server"]) == ('"abX"', '"abc"')


def test_a_version_that_was_trimmed_on_the_server_is_not_compared() -> None:
    """The verdict notes that the contents were not compared; a later audit of newer journals may compare
    them.
    """
    trimmed = LoroDoc()
    trimmed.import_(TWO.export(ExportMode.ShallowSnapshot(TWO.oplog_frontiers)))
    verdict = judge(journalled(ONE), served(trimmed), before={ALICE: 3})
    assert verdict.differences == ()
    assert verdict.uncompared
    assert verdict.passing
    assert compare(journalled(TWO), served(trimmed)) == []


def test_counters_add_up_in_any_order() -> None:
    """A counter is a sum of floats: the last bits depend on the order, and are no difference."""
    writers = []
    for peer, part in enumerate([0.1, 0.2, 0.3], start=1):
        doc = LoroDoc()
        doc.peer_id = peer
        doc.get_counter("count").increment(part)
        doc.commit()
        writers.append(doc.export(ExportMode.Snapshot()))
    there, here = LoroDoc(), LoroDoc()
    for update in writers:
        there.import_(update)
    for update in writers[::-1]:
        here.import_(update)
    sums = journalled(here).json, journalled(there).json
    assert sums[0] != sums[1], "else this test proves nothing"
    assert compare(journalled(here), served(there)) == []
    there.get_counter("count").increment(1)
    there.commit()
    [one] = compare(
        journalled(there, json=sums[0], content_hash=journalled(here).content_hash), served(there)
    )
    assert (one.kind, one.to_json()["path"]) == (DifferenceKind.CONTENT_DIFFERS, "$.count")


def test_empty_roots_are_no_difference() -> None:
    """A table that was written with empty roots is compared without them."""
    value = {"body": "abc", "later": [], "title": "", "meta": {}, "count": 0.0}
    row = journalled(ONE, json=content.canonical(value), content_hash=content.content_hash(value))
    assert compare(row, served(ONE)) == []


def test_a_row_that_contradicts_itself_is_not_believed() -> None:
    """If a table's JSON is not what its hash is of, the contents differ, and no place is named."""
    [one] = compare(journalled(ONE, content_hash="0" * 64), served(ONE))
    assert one.kind is DifferenceKind.CONTENT_DIFFERS
    assert one.to_json()["path"] is None
    [one] = compare(journalled(FORGED, json=None), served(ONE))
    assert (one.kind, one.to_json()["path"]) == (DifferenceKind.CONTENT_DIFFERS, None)


def test_differences_have_an_order() -> None:
    """The worst comes first, then documents by name; a difference of no document is in its place, too."""
    broken = difference.damaged_segment("journal/00/0001.seg", "a checksum is wrong")
    found = [
        broken,
        *(one for case in OTHER for one in compare(case[1], case[2])),
        difference.generation_differs("another", 0, 1),
    ]
    ordered = sorted(found)
    random.Random(1).shuffle(found)
    assert ordered == sorted(found)
    assert [one.severity for one in ordered] == sorted(one.severity for one in found)
    assert ordered[0].document_id == "another"
    assert broken.to_json()["document"] is None
    assert {one.kind for one in found} == set(DifferenceKind)
    assert {one.severity for one in found} == set(Severity)
    assert isinstance(ordered[0], Difference)


def test_rows_come_from_the_table() -> None:
    """Rows of `documents` are read as they are, the newest of each document, without its bytes."""
    row = {
        "document_id": HERE,
        "as_of": 0,
        "latest": True,
        "state": "live",
        "generation": 1,
        "complete": True,
        "problem": None,
        "updates": 1,
        "update_bytes": 1,
        "version": [{"peer": str(2**64 - 1), "end": 3}],
        "vector": b"",
        "frontiers": b"\x00",
        "content_hash": "ab",
        "json": "{}",
        "text": "",
        "chars": 0,
        "snapshot_bytes": 0,
        "bucket": 0,
        "snapshot": b"",
    }
    made = [
        row,
        {**row, "latest": False},
        {**row, "document_id": "b", "complete": False, "problem": "why", "json": None},
        {**row, "document_id": "c", "complete": False, "frontiers": None, "content_hash": None},
    ]
    batch = pa.RecordBatch.from_pylist(made, schema=DOCUMENTS)
    first, second, third = rows([batch], {"b": [BAD]})
    assert [one.bad for one in (first, second, third)] == [(), (BAD,), ()]
    assert first == JournalDocument(HERE, "live", 1, {2**64 - 1: 3}, b"\x00", "ab", "{}")
    assert (second.document_id, second.problem, second.json) == ("b", "why", None)
    assert third.problem == "the journals are incomplete"
    many = pa.RecordBatch.from_pylist([{**row, "document_id": str(n)} for n in range(200)], schema=DOCUMENTS)
    assert [one.document_id for one in rows([many, batch])][:200] == [str(n) for n in range(200)]

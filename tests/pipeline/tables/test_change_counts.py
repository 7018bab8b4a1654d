"""The number of changes in an update, read from its first bytes: equal to Loro's own number."""

import random

import numpy as np
import pyarrow as pa
import pytest
from loro import ExportMode, LoroDoc, LoroText, VersionVector

from lorogo_pipeline.tables.change_counts import change_counts
from lorogo_protocol.loro import crdt


def edit(doc: LoroDoc, rng: random.Random) -> None:
    """Something that people do, of any kind."""
    text = doc.get_text("text")
    match rng.randrange(7):
        case 0:
            text.insert(rng.randint(0, text.len_unicode), "é𝄞x" * rng.choice([1, 5, 3000]))
        case 1:
            doc.get_map("map").insert(str(rng.random()), rng.choice([None, True, 2.5, "x", b"y"]))
        case 2:
            doc.get_list("list").push(rng.random())
        case 3:
            doc.get_tree("tree").create(None)
        case 4:
            inside = doc.get_map("map").insert_container("inside", LoroText())
            assert isinstance(inside, LoroText)
            inside.insert(0, "hi")
        case 5 if text.len_unicode > 3:
            text.delete(1, 2)
        case _:
            doc.get_movable_list("movable").push(1)


def blobs(seed: int, count: int) -> list[bytes]:
    """Updates and snapshots of all sorts, by several people who see some of each other's edits."""
    rng = random.Random(seed)
    people = [LoroDoc() for _ in range(rng.randint(1, 4))]
    for one in people:
        one.peer_id = rng.getrandbits(64)
        one.set_record_timestamp(rng.random() < 0.5)
        one.set_change_merge_interval(rng.choice([-1, 0, 1000]))
    found = []
    for _ in range(count):
        writer = rng.choice(people)
        before = writer.oplog_vv
        for _ in range(rng.choice([1, 1, 3, 40])):
            edit(writer, rng)
            if rng.random() < 0.3:
                writer.commit()
        writer.commit()
        update = writer.export(ExportMode.Updates(before))
        found.append(update)
        found += rng.choice(
            [
                [],
                [writer.export(ExportMode.Updates(VersionVector()))],
                [writer.export(ExportMode.Snapshot())],
                [writer.export(ExportMode.ShallowSnapshot(writer.oplog_frontiers))],
            ]
        )
        for one in people:
            if one is not writer and rng.random() < 0.5:
                one.import_(writer.export(ExportMode.Updates(one.oplog_vv)))
    return found


def counted(updates: list[bytes], *, accepted: bool) -> list[int | None]:
    found: list[int | None] = change_counts(
        pa.array(updates, pa.binary()), np.full(len(updates), accepted)
    ).to_pylist()
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_count_is_the_one_that_loro_gives(seed: int) -> None:
    """For everything that Loro exports: one block or many, one peer or several, updates and snapshots."""
    made = blobs(seed, 20)
    assert counted(made, accepted=True) == [crdt.change_count(blob) for blob in made]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_no_update_has_no_count(seed: int) -> None:
    """Bytes that do not decode have no count; Loro counts damaged ones that no owner accepted."""
    rng = random.Random(seed)
    damaged = []
    for blob in blobs(seed, 10):
        changed = bytearray(blob)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        damaged += [
            bytes(changed),
            rng.randbytes(60),
            b"loro" + rng.randbytes(16) + b"\0\4" + rng.randbytes(9),
        ]
    assert counted(damaged, accepted=False) == [crdt.change_count(blob) for blob in damaged]
    cut = [blob[: rng.randrange(len(blob))] for blob in blobs(seed, 10)]
    assert counted(cut, accepted=True) == [crdt.change_count(blob) for blob in cut]


def test_a_slice_is_counted_like_a_column_of_its_own() -> None:
    """The position of the bytes in their buffer does not matter; an empty column has no counts."""
    made = blobs(7, 10)
    whole = pa.array([b"", *made, b"loro"], pa.binary())
    accepted = np.ones(len(made), bool)
    assert change_counts(whole.slice(1, len(made)), accepted).to_pylist() == counted(made, accepted=True)
    assert change_counts(whole.slice(0, 0), accepted[:0]).to_pylist() == []

"""Edits of others, shown as lines."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from loro import DiffEvent, ExportMode, LoroDoc, LoroMap, LoroText

from lorogo_cli.doc import changes


def lines_of(
    edit: Callable[[LoroDoc], None], before: Callable[[LoroDoc], None] = lambda _: None
) -> list[str]:
    """The lines that another replica shows for an edit."""
    theirs, ours = LoroDoc(), LoroDoc()
    before(theirs)
    theirs.commit()
    ours.import_(theirs.export(ExportMode.Snapshot()))
    events: list[DiffEvent] = []
    subscription = ours.subscribe_root(events.append)
    edit(theirs)
    theirs.commit()
    ours.import_(theirs.export(ExportMode.Updates(ours.oplog_vv)))
    subscription.unsubscribe()
    parts = [part for event in events for part in changes.facts(event)]
    json.dumps(parts)  # scripts get it whole
    return sorted(changes.lines(parts))


def typed_hello(doc: LoroDoc) -> None:
    doc.get_text("body").insert(0, "hello")
    doc.get_map("meta").insert("k", 1)
    doc.get_list("list").insert(0, "a")


def delete_and_insert(doc: LoroDoc) -> None:
    doc.get_text("body").delete(1, 2)
    doc.get_text("body").insert(3, "!")


def nested(doc: LoroDoc) -> None:
    item: Any = doc.get_list("list").insert_container(0, LoroMap())
    item.insert("x", True)
    item.insert_container("text", LoroText()).insert(0, "t")


@pytest.mark.parametrize(
    ("edit", "lines"),
    [
        (lambda doc: doc.get_text("body").insert(5, " you"), ['body: +" you" at 5']),
        (delete_and_insert, ['body: -2 at 1, +"!" at 3']),
        (lambda doc: doc.get_map("meta").insert("k", {"n": 2}), ['meta: k = {"n":2}']),
        (lambda doc: doc.get_map("meta").delete("k"), ["meta: k removed"]),
        (lambda doc: doc.get_list("list").insert(1, 7), ["list: +[7] at 1"]),
        (lambda doc: doc.get_counter("votes").increment(2), ["votes: +2"]),
        (lambda doc: doc.get_tree("tree").create(), ["tree: 1 node created, moved or deleted"]),
    ],
)
def test_an_edit_is_one_line(edit: Callable[[LoroDoc], None], lines: list[str]) -> None:
    """`doc watch` shows the place and the change, for every kind of container."""
    assert lines_of(edit, typed_hello) == lines


def test_containers_are_shown_with_their_content() -> None:
    """A new map in a list shows its content, and the list knows where."""
    assert any(line.startswith("list: +[{") and '"x":true' in line for line in lines_of(nested, typed_hello))

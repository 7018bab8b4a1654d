"""Operators' commands on an open and on a closed lorogo: both give the same results."""

import json

import pytest
from loro import ExportMode, LoroDoc

from tests.e2e.stacks import Stack, same

pytestmark = pytest.mark.nats


def test_a_value_is_set_got_reverted_and_its_history_shown(stack: Stack, name: str) -> None:
    """`doc set`, `get`, `history` and `revert`."""
    first = json.loads(stack.lorogo("doc", "set", name, "title", '"one"', "--json").well)
    assert first["durability"] == "journal"
    second = json.loads(stack.lorogo("doc", "set", name, "people.0.name", '"Ada"', "--json").well)
    assert json.loads(stack.lorogo("doc", "get", name).well) == {"title": "one", "people": [{"name": "Ada"}]}
    assert second["version"] in stack.lorogo("doc", "history", name).well
    assert stack.lorogo("doc", "revert", name, first["version"]).well
    assert json.loads(stack.lorogo("doc", "get", name).well)["people"] == []


def test_a_document_of_several_windows_is_forked_exported_and_imported(stack: Stack, name: str) -> None:
    """`doc import`, `fork` and `export` with 5 MB; the file is a Loro snapshot."""
    doc = LoroDoc()
    doc.get_map("files").insert("noise", bytes(range(256)) * 20_000)
    doc.commit()
    given, taken = stack.folder / f"{name}.in", stack.folder / f"{name}.out"
    given.write_bytes(doc.export(ExportMode.Snapshot()))
    assert stack.lorogo("doc", "import", name, str(given)).well
    assert stack.lorogo("doc", "fork", name, f"{name}-copy").well
    assert stack.lorogo("doc", "export", f"{name}-copy", str(taken)).well.startswith(
        f"{name}-copy exported to {taken}: "
    )
    copy = LoroDoc()
    copy.import_(taken.read_bytes())
    assert same(copy.get_deep_value(), doc.get_deep_value())


def test_a_document_is_deleted_restored_erased_and_seen_in_status(stack: Stack, name: str) -> None:
    """`doc delete`, `doc restore`, `status`, `compact` and `trace`."""
    saved = json.loads(stack.lorogo("doc", "set", name, "title", '"one"', "--json").well)
    assert saved["sequence"] > 0
    assert stack.lorogo("compact", name).well
    assert stack.lorogo("doc", "delete", name, "--yes").well == f"{name} is deleted\n"
    assert f"lorogo doc restore {name}" in stack.lorogo("doc", "get", name).err
    assert json.loads(stack.lorogo("status", name, "--json").well)["deleted"] is True
    assert stack.lorogo("doc", "restore", name).well == f"{name} is restored\n"
    assert json.loads(stack.lorogo("doc", "get", name).well) == {"title": "one"}
    assert stack.lorogo("doc", "delete", name, "--purge", "--yes").well
    assert stack.lorogo("doc", "get", name).err.endswith("was erased for good\n")
    unknown = stack.lorogo("doc", "get", "never-written").err
    assert unknown.startswith("lorogo: document 'never-written' does not exist")

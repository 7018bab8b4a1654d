"""Editing traces as updates of a journal, with the text that the document had behind each of them."""

import gzip
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loro import ExportMode, LoroDoc

from tests.e2e.traces import Patch, trace
from tests.pipeline.journals import SECOND, START, Author, Made, made

_PROJECT = Path(__file__).parents[2]


@dataclass
class Traced:
    """A document that was really typed."""

    document_id: str
    end_content: str
    updates: list[Made] = field(default_factory=list)
    texts: dict[int, str] = field(
        default_factory=dict
    )  # of some moments (ns) behind an update: the text then


def typed(name: str, *, patches: int | None, patches_an_update: int, looks: int = 20) -> Traced:
    """A trace that one person typed; the first so many edits of it, or all."""
    found = trace(name)
    some = found.patches[:patches]
    author = Author(f"trace-{name}", 77)
    result = Traced(author.document_id, found.end_content if len(some) == len(found.patches) else "")
    groups = [some[at : at + patches_an_update] for at in range(0, len(some), patches_an_update)]
    every = max(1, len(groups) // looks)
    for number, group in enumerate(groups, 1):
        at_ns = START + number * SECOND
        payload = _edit(author, group)
        result.updates.append(made(author.document_id, payload, at_ns, sequence=number))
        if number % every == 0:
            result.texts[at_ns] = author.doc.get_text("text").to_string()
    return result


def _edit(author: Author, patches: list[Patch]) -> bytes:
    before = author.doc.oplog_vv
    body = author.doc.get_text("text")
    for position, deleted, inserted in patches:
        if deleted:
            body.delete(position, deleted)
        if inserted:
            body.insert(position, inserted)
    author.doc.commit()
    return author.doc.export(ExportMode.Updates(before))


def concurrent(name: str, *, looks: int = 20) -> Traced | None:
    """A trace of several people at once, one update for each run of edits; None if it is not at hand."""
    folders = [Path(os.environ.get("LOROGO_TRACES", "")), _PROJECT.parent / "shared" / "data" / "traces"]
    paths = [folder / f"concurrent-{name}.json.gz" for folder in folders]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        return None
    with gzip.open(path, "rt") as file:
        body = json.load(file)
    return _Replay(f"trace-{name}", body, looks).result


class _Replay:
    """Each person has a replica, and gets from the others what an edit builds on, just before it."""

    def __init__(self, document_id: str, body: dict[str, Any], looks: int) -> None:
        txns = body["txns"]
        self.result = Traced(document_id, body["endContent"])
        self._authors = [Author(document_id, 10 + agent) for agent in range(body["numAgents"])]
        self._run_of: list[int] = []  # of each transaction
        self._parents: list[set[int]] = []  # of each run, other runs
        self._known: list[set[int]] = [set() for _ in self._authors]
        runs = self._runs(txns)
        every = max(1, len(runs) // looks)
        everybody = LoroDoc()
        for number, run in enumerate(runs):
            agent = run[0]["agent"]
            self._fetch(agent, self._parents[number])
            payload = _edit(self._authors[agent], [tuple(patch) for txn in run for patch in txn["patches"]])
            self._known[agent].add(number)
            at_ns = START + (number + 1) * SECOND
            self.result.updates.append(made(document_id, payload, at_ns, sequence=number + 1))
            everybody.import_(payload)
            if number % every == every - 1:
                self.result.texts[at_ns] = everybody.get_text("text").to_string()

    def _runs(self, txns: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        runs: list[list[dict[str, Any]]] = []
        for number, txn in enumerate(txns):
            follows = txn["parents"] == [number - 1] and txns[number - 1]["agent"] == txn["agent"]
            if not follows or txns[number - 1]["numChildren"] > 1:
                self._parents.append({self._run_of[parent] for parent in txn["parents"]})
                runs.append([])
            runs[-1].append(txn)
            self._run_of.append(len(runs) - 1)
        return runs

    def _fetch(self, agent: int, wanted: set[int]) -> None:
        missing, waiting = set[int](), set(wanted)
        while waiting:
            run = waiting.pop()
            if run not in self._known[agent] and run not in missing:
                missing.add(run)
                waiting |= self._parents[run]
        for run in sorted(missing):
            self._authors[agent].doc.import_(self.result.updates[run].record.payload)
        self._known[agent] |= missing

"""A trace typed offline into a store, through kill -9, while the server compacts and trims: nothing is lost.

Real processes, real NATS, a real server. The typist is this file, run as a program of its own. Run with
`-s` to see the figures.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lorogo_client
from lorogo_client import Session, State, StoreLocked
from lorogo_client.store import Store
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.e2e.support import eventually, servers, text_of
from tests.e2e.traces import RecordedTrace, trace

_DOCUMENT = "paper"
_HEADER = "A line that another client wrote meanwhile.\n"
_NOWHERE = "nats://127.0.0.1:1"  # no server listens there: a laptop on a plane
_AT_ONCE = 200  # commits between two checks of the stored edits
_KILLS = 4
_EDITS = int(os.environ.get("LOROGO_OFFLINE_EDITS", "20000"))  # of the trace; it has 259,778
_PROGRAM = "tests.e2e.test_offline_store"


# --- the typist: a process of its own


def next_edit(session: Session) -> int:
    """The number of typed edits of the trace, which the document has in the same commit as the edit."""
    value = session.doc.get_map("meta").get_deep_value()
    number = value.get("next", 0) if isinstance(value, dict) else None
    assert isinstance(number, int)
    return number


async def type_on(session: Session, typed: RecordedTrace, until: int) -> None:
    """Continue typing the trace, with a commit for each edit, and report the stored edits."""
    body, meta = session.doc.get_text("body"), session.doc.get_map("meta")
    for number in range(next_edit(session), until):
        position, deleted, inserted = typed.patches[number]
        if deleted:
            body.delete(position, deleted)
        if inserted:
            body.insert(position, inserted)
        meta.insert("next", number + 1)
        session.commit()
        if (number + 1) % _AT_ONCE == 0:
            await session.stored(timeout=30)
            say(stored=number + 1, unsaved=session.unsaved)
    await session.stored(timeout=30)
    say(stored=until, unsaved=session.unsaved)


async def online(url: str, store: str, typed: RecordedTrace, until: int) -> None:
    async with lorogo_client.connect(url, store=store) as client, client.open(_DOCUMENT) as session:
        await session.ready(30)
        await type_on(session, typed, until)
        await session.flush(30)
        say(saved=next_edit(session))


async def offline(store: str, typed: RecordedTrace, until: int) -> None:
    began = time.monotonic()
    async with lorogo_client.connect(_NOWHERE, store=store) as client:
        connected = time.monotonic()
        async with client.open(_DOCUMENT) as session:
            assert session.state is State.OFFLINE
            say(
                opened=next_edit(session),
                connect_seconds=connected - began,
                open_seconds=time.monotonic() - connected,
                unsaved=session.unsaved,
            )
            await type_on(session, typed, until)


async def back(url: str, store: str, typed: RecordedTrace) -> None:
    began = time.monotonic()
    async with lorogo_client.connect(url, store=store) as client, client.open(_DOCUMENT) as session:
        say(back=next_edit(session), unsaved=session.unsaved)
        await session.ready(30)
        await session.flush(60)
        text = session.doc.get_text("body").to_string()
        say(
            saved=next_edit(session),
            seconds=time.monotonic() - began,
            rebased=session.doc.is_shallow(),
            equal=text.replace(_HEADER, "") == typed.end_content,
            headers=text.count(_HEADER),
            state=session.state.value,
        )


def say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> None:
    what, url, store, edits, until = arguments
    typed = piece(int(edits))
    match what:
        case "online":
            asyncio.run(online(url, store, typed, int(until)))
        case "offline":
            asyncio.run(offline(store, typed, int(until)))
        case _:
            asyncio.run(back(url, store, typed))


# --- the drill


def piece(edits: int) -> RecordedTrace:
    """The first edits of the trace, and the text that they lead to."""
    whole = trace("automerge-paper")
    patches = whole.patches[:edits]
    if len(patches) == len(whole.patches):
        return whole
    text: list[str] = []
    for position, deleted, inserted in patches:
        text[position : position + deleted] = inserted
    return RecordedTrace(whole.name, "".join(text), patches)


class Typist:
    """One run of the typist's process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, what: str, url: str, store: Path, edits: int, until: int) -> "Typist":
        arguments = (what, url, str(store), str(edits), str(until))
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", _PROGRAM, *arguments, stdout=asyncio.subprocess.PIPE
            )
        )

    async def hear(self, word: str) -> dict[str, Any]:
        """The next line that has this word."""
        assert self.process.stdout is not None
        async with asyncio.timeout(110):
            while line := await self.process.stdout.readline():
                facts: dict[str, Any] = json.loads(line)
                if word in facts:
                    return facts
        raise AssertionError(f"the typist ended with {await self.process.wait()}, and never printed {word!r}")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        async with asyncio.timeout(60):
            assert await self.process.wait() == 0


@pytest.mark.timeout(600)
async def test_a_trace_typed_offline_and_killed_arrives_whole_after_the_server_trimmed(
    fresh_nats: EmbeddedNats, tmp_path: Path
) -> None:
    """The text has every stored edit exactly once, and the state is SAVED only then."""
    url, store, typed = fresh_nats.url, tmp_path / "store", piece(_EDITS)
    edits, begin = len(typed.patches), len(typed.patches) // 10
    rng = random.Random(5)
    async with servers(url) as start:
        await start(history_seconds=0)
        typist = await Typist.start("online", url, store, edits, begin)
        await typist.hear("saved")
        await typist.end()

        began = time.monotonic()
        table: list[str] = []
        stored = begin
        for number in range(_KILLS + 1):
            typist = await Typist.start("offline", url, store, edits, edits)
            opened = await typist.hear("opened")
            assert opened["opened"] >= stored, "an edit that was stored is lost"
            if number == 0:  # it has long to type: in a later life it may be at the end, and gone
                with pytest.raises(StoreLocked, match="another process"):
                    await lorogo_client.connect(_NOWHERE, store=store)
            row = (
                f"  life {number + 1}: opened at edit {opened['opened']:>6}, {opened['unsaved']:>5} unsaved,"
                f" connect {opened['connect_seconds'] * 1000:4.0f} ms,"
                f" open {opened['open_seconds'] * 1000:4.0f} ms"
            )
            if number == _KILLS:
                while stored < edits:
                    stored = int((await typist.hear("stored"))["stored"])
                await typist.end()
                table.append(f"{row}, typed to the end")
                break
            goal = opened["opened"] + rng.randint(1, max(1, (edits - begin) // _KILLS))
            while stored < min(goal, edits):
                stored = int((await typist.hear("stored"))["stored"])
            await typist.kill()
            table.append(f"{row}, killed after {stored} were stored")
        seconds = time.monotonic() - began

        # meanwhile, at the office
        async with lorogo_client.connect(url) as client:
            async with client.open(_DOCUMENT) as session:
                session.doc.get_text("body").insert(0, _HEADER)
                await session.flush(30)
            report = await client.document(_DOCUMENT).compact()

        # killed once more, between sending and ACK or not, as it comes
        typist = await Typist.start("back", url, store, edits, edits)
        unsaved = await typist.hear("back")
        await asyncio.sleep(rng.uniform(0, 0.05))
        await typist.kill()
        typist = await Typist.start("back", url, store, edits, edits)
        back = await typist.hear("saved")
        await typist.end()
        await eventually(lambda: _equal(url, typed))
        size = sum(path.stat().st_size for path in _files(store))
        (document,) = Store.open(store).documents()
        print(
            f"\ntrace {typed.name}: {begin} edits saved online, {edits - begin} typed offline in"
            f" {seconds:.1f} s through {_KILLS} kills\n"
            + "\n".join(table)
            + f"\n  the server compacted to a snapshot of"
            f" {report['snapshot_bytes']} bytes and purged {report['purged']} messages; back with"
            f" {unsaved['unsaved']} update(s) unsaved, killed, back again: rebased {bool(back['rebased'])},"
            f" saved {back['saved']} edits in {back['seconds']:.2f} s, text equal: {bool(back['equal'])}\n"
            f"  the store at the end: {size} bytes in files, {document.bytes} of them in use"
        )
        assert back["saved"] == edits
        assert back["rebased"]
        assert back["equal"]
        assert back["headers"] == 1
        assert back["state"] == State.SAVED.value
        assert document.unsaved == 0


async def _equal(url: str, typed: RecordedTrace) -> bool:
    """The new client's text is the trace's text, with the line of the other client once."""
    text = await text_of(url, _DOCUMENT)
    return text.count(_HEADER) == 1 and text.replace(_HEADER, "") == typed.end_content


def _files(store: Path) -> list[Path]:
    return [path for path in store.rglob("*") if path.is_file()]


async def test_a_client_with_a_store_comes_before_its_nats(tmp_path: Path) -> None:
    """connect() returns without NATS; when NATS and a server appear, what was typed is saved by itself."""
    nats = EmbeddedNats(tmp_path / "nats")
    async with nats:
        url = nats.url
    async with (
        lorogo_client.connect(url, store=tmp_path / "store") as client,
        client.open("early", create=True) as session,
    ):
        session.doc.get_text("body").insert(0, "typed before anything ran")
        await session.stored(timeout=10)
        assert session.state is State.OFFLINE
        async with nats, servers(url) as start:
            await start()
            await session.flush(timeout=60)
            assert session.unsaved == 0
            assert await text_of(url, "early") == "typed before anything ran"


if __name__ == "__main__":
    main(sys.argv[1:])

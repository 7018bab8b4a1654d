"""Everything that NATS held is gone: `lorogo restore` brings it back from journals, and proves it."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import lorogo_client
from lorogo_client import Client
from lorogo_client.versions import show_time
from lorogo_log import BlockingLog
from lorogo_protocol.access import revocation
from lorogo_protocol.journal.records import UpdateRecord, encode
from lorogo_protocol.messages.calls import Refused
from lorogo_protocol.messages.digest import digest
from lorogo_server import Server, ServerSettings
from lorogo_server.journal.record_sorter import decode
from lorogo_server.recovery import revocation_copy
from lorogo_server.recovery.restore_sources import find
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import SystemClock
from lorogo_transport.nats import connection
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import lorogo, refused, said, said_json
from tests.server.support import Writer

FULL = os.environ.get("LOROGO_DRILL") == "full"
DOCUMENTS = 1000 if FULL else 50
EDITS = 5
AT_ONCE = 25


@asynccontextmanager
async def serving(nats: EmbeddedNats, data: Path, **settings: object) -> AsyncIterator[Client]:
    """A server whose journal is in that folder, and a client."""
    transport = await connection.connect(nats.url, name="server")
    try:
        async with (
            Server(transport, ServerSettings(**settings), data=data),  # type: ignore[arg-type]
            lorogo_client.connect(nats.url) as client,
        ):
            yield client
    finally:
        await transport.close()


@asynccontextmanager
async def empty_nats(folder: Path) -> AsyncIterator[EmbeddedNats]:
    async with EmbeddedNats(folder) as nats:
        yield nats


async def write(client: Client, document_id: str, words: list[str]) -> None:
    """Write each word in a commit of its own, ACKed, in a millisecond of its own."""
    async with client.open(document_id) as session:
        for word in words:
            body = session.doc.get_text("body")
            body.insert(len(body), word)
            session.commit()
            await session.flush(timeout=60)
            await asyncio.sleep(0.002)


async def text_of(client: Client, document_id: str) -> str:
    value = (await client.document(document_id).get())["value"]
    assert isinstance(value, dict)
    return str(value["body"])


@pytest.mark.nats
@pytest.mark.timeout(1200 if FULL else 120)
async def test_all_documents_come_back_from_the_journals_of_two_servers(tmp_path: Path) -> None:
    """Without NATS's files, the servers' data folders restore every ACKed edit, tombstone and compacted
    document; the proof confirms that, and a new server serves all of it.
    """
    names = [f"doc-{number:04d}" for number in range(DOCUMENTS)]
    words = [f"w{number} " for number in range(EDITS)]
    data = tmp_path / "data"
    slots = asyncio.Semaphore(AT_ONCE)
    async with empty_nats(tmp_path / "old") as nats:
        async with serving(nats, data / "worker-0") as client:

            async def fill(name: str) -> None:
                async with slots:
                    await write(client, name, words)

            await asyncio.gather(*(fill(name) for name in names))
            await client.document(names[1]).compact()
            await client.document(names[2]).delete()
            await client.document(names[4]).delete(purge=True)
        # another owner goes on where the first stopped
        async with serving(nats, data / "worker-1") as client:
            await write(client, names[0], ["again"])
            await write(client, names[1], ["after the snapshot"])
    began = time.monotonic()
    async with empty_nats(tmp_path / "new") as nats:
        result = await asyncio.to_thread(
            lorogo, "restore", "--journal", str(data), "--nats", nats.url, "--json", cwd=tmp_path
        )
        proof = said_json(result)
        print(f"{DOCUMENTS} documents restored and proved in {time.monotonic() - began:.1f} s")
        assert proof["complete"] is True
        assert len(proof["documents"]) == DOCUMENTS
        assert proof["updates"] == (DOCUMENTS - 1) * EDITS + 2
        assert all(one["proved"] for one in proof["documents"])
        states = {one["document"]: one["state"] for one in proof["documents"]}
        assert states.pop(names[2]) == "deleted"
        assert states.pop(names[4]) == "erased"
        assert set(states.values()) == {"restored"}
        async with serving(nats, tmp_path / "fresh") as client:
            whole = "".join(words)
            assert await text_of(client, names[0]) == whole + "again"
            assert await text_of(client, names[1]) == whole + "after the snapshot"
            assert await text_of(client, names[-1]) == whole
            with pytest.raises(Refused, match="deleted"):
                await text_of(client, names[2])
            await client.document(names[2]).restore()
            assert await text_of(client, names[2]) == whole
            with pytest.raises(Refused, match="erased"):
                await client.document(names[4]).restore()
            await write(client, names[3], ["and on"])
            assert await text_of(client, names[3]) == whole + "and on"


@pytest.mark.nats
async def test_one_document_as_of_an_earlier_moment_becomes_a_new_one(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """While everything runs, one document is written as it was at a time, under a new id; the one that
    lives is not touched.
    """
    data = tmp_path / "data" / "worker-0"
    async with serving(fresh_nats, data) as client:
        await write(client, "minutes", ["one ", "two ", "three "])
        times = [
            record.time
            for source in find(str(data))
            for record in source.records("minutes")
            if isinstance(decode(record.payload), UpdateRecord)
        ]
        assert len(times) == 3
        arguments = ["restore", "--journal", str(data), "--nats", fresh_nats.url, "--document", "minutes"]
        # what is shown is rounded up to a millisecond, as the command takes it
        at = ["--at", show_time(times[1])]
        live = await asyncio.to_thread(lorogo, *arguments, *at, cwd=tmp_path)
        assert "minutes is there already" in refused(live)
        looked = await asyncio.to_thread(lorogo, *arguments, *at, "--dry-run", cwd=tmp_path)
        assert "nothing was written" in said(looked)
        done = await asyncio.to_thread(lorogo, *arguments, *at, "--to", "before", "--json", cwd=tmp_path)
        proof = said_json(done)
        assert [one["stored_as"] for one in proof["documents"]] == ["before"]
        assert await text_of(client, "before") == "one two "
        assert await text_of(client, "minutes") == "one two three "
        again = await asyncio.to_thread(lorogo, *arguments, *at, "--to", "before", cwd=tmp_path)
        assert "before is there already" in refused(again)


@pytest.mark.nats
async def test_a_nats_with_documents_is_refused_and_merge_adds_only_what_is_not_there(
    tmp_path: Path, fresh_nats: EmbeddedNats
) -> None:
    """A restore never writes over what lives."""
    data = tmp_path / "data"
    async with serving(fresh_nats, data) as client:
        await write(client, "kept", ["one "])
        await write(client, "lost", ["two "])
    async with empty_nats(tmp_path / "new") as nats:
        async with serving(nats, tmp_path / "other") as client:
            await write(client, "kept", ["another life"])
        arguments = ["restore", "--journal", str(data), "--nats", nats.url]
        assert "is not empty" in refused(await asyncio.to_thread(lorogo, *arguments, cwd=tmp_path))
        merged = await asyncio.to_thread(lorogo, *arguments, "--merge", cwd=tmp_path)
        assert merged.returncode == 1, merged.stderr
        assert b"kept: what is there lacks changes of these journals" in merged.stderr
        async with serving(nats, tmp_path / "fresh") as client:
            assert await text_of(client, "kept") == "another life"
            assert await text_of(client, "lost") == "two "


@pytest.mark.nats
async def test_a_damaged_segment_costs_only_what_was_in_it(tmp_path: Path) -> None:
    """The rest of a damaged journal is restored, the loss is reported, and the exit code is 1; with a copy of
    the journal nothing is lost.
    """
    data, copy = tmp_path / "data", tmp_path / "copy"
    async with empty_nats(tmp_path / "old") as nats, serving(nats, data) as client:
        await write(client, "hurt", ["one ", "two ", "three "])
        await write(client, "well", ["four "])
    segment = next(path for path in (data / "journal" / "00").iterdir() if path.suffix == ".seg")
    copy.mkdir()
    whole = segment.read_bytes()
    (copy / segment.name).write_bytes(whole)
    at = whole.index(b"three ")
    segment.write_bytes(whole[:at] + b"X" + whole[at + 1 :])
    async with empty_nats(tmp_path / "new") as nats:
        arguments = ["restore", "--journal", str(data), "--nats", nats.url, "--json"]
        result = await asyncio.to_thread(lorogo, *arguments, "--dry-run", cwd=tmp_path)
        assert result.returncode == 1
        assert segment.name.encode() in result.stdout
        both = await asyncio.to_thread(lorogo, *arguments, "--journal", str(copy), cwd=tmp_path)
        proof = said_json(both)
        assert proof["complete"] is True
        assert [segment.name in words for words in proof["repaired"]] == [True]
        async with serving(nats, tmp_path / "fresh") as client:
            assert await text_of(client, "hurt") == "one two three "
            assert await text_of(client, "well") == "four "


@pytest.mark.nats
async def test_revocations_come_back_with_the_documents(tmp_path: Path) -> None:
    """The list of revoked tokens is complete again: what the servers' disks have of it is refused."""
    data = tmp_path / "data"
    async with empty_nats(tmp_path / "old") as nats, serving(nats, data) as client:
        await write(client, "minutes", ["one "])
    revoked = revocation.of_token(1_700_000_000.0, None)
    (data / "revocations").write_bytes(revocation_copy.encode({"tok_a": revoked}))
    async with empty_nats(tmp_path / "new") as nats:
        said(
            await asyncio.to_thread(
                lorogo, "restore", "--journal", str(data), "--nats", nats.url, cwd=tmp_path
            )
        )
        async with await connection.connect(nats.url) as transport:
            listed = Revocations(transport, SystemClock())
            await listed.read()
            assert listed.complete
            assert set(listed.entries) == {"tok_a"}


@pytest.mark.nats
async def test_after_a_restore_versions_can_be_reached_and_the_epoch_is_a_new_one(tmp_path: Path) -> None:
    """`history` and `get --at` know what the journal knew, and the old ledgers are not believed: the
    journal takes the updates of the new stream though their sequences come again.
    """
    data = tmp_path / "data"
    async with empty_nats(tmp_path / "old") as nats, serving(nats, data) as client:
        await write(client, "minutes", ["one ", "two "])
    async with empty_nats(tmp_path / "new") as nats:
        done = await asyncio.to_thread(
            lorogo, "restore", "--journal", str(data), "--nats", nats.url, "--json", cwd=tmp_path
        )
        assert said_json(done)["epoch"] == 2
        async with serving(nats, tmp_path / "fresh") as client:
            assert await client.document("minutes").history()
            await write(client, "minutes", ["three "])  # sequence 1 again, which the old ledger has covered
        async with serving(nats, data) as client:
            assert await text_of(client, "minutes") == "one two three "
        assert len(_updates(data, "minutes")) == 3


@pytest.mark.nats
async def test_one_document_as_of_five_minutes_ago(tmp_path: Path, fresh_nats: EmbeddedNats) -> None:
    """`--at 5m` leaves out what was accepted since; where the id is free, no other is needed."""
    now = time.time_ns()
    writer = Writer()
    with BlockingLog(tmp_path / "journal" / "00") as log:
        for number, (word, minutes) in enumerate([("old ", 60), ("older ", 6), ("new", 1)], 1):
            payload = writer.type(word)
            record = UpdateRecord(1, number, f"log{number}", digest(payload), 7, 0, (), payload)
            log.append(encode(record), key=b"minutes", ts=now - minutes * 60_000_000_000)
    done = await asyncio.to_thread(
        lorogo,
        *("restore", "--journal", str(tmp_path / "journal"), "--nats", fresh_nats.url),
        *("--document", "minutes", "--at", "5m"),
        cwd=tmp_path,
    )
    words = said(done)
    assert "1 of 1 document read back" in words
    assert "1 record newer than that left out" in words
    async with serving(fresh_nats, tmp_path / "fresh") as client:
        assert await text_of(client, "minutes") == "old older "


@pytest.mark.nats
async def test_an_archive_alone_is_enough(tmp_path: Path) -> None:
    """With NATS and the server's disk gone, what was shipped is restored from the archive's URL."""
    data, url = tmp_path / "data" / "worker-0", f"file://{tmp_path}/archive"
    async with empty_nats(tmp_path / "old") as nats, serving(nats, data) as client:
        await write(client, "minutes", ["one ", "two "])
    said(await asyncio.to_thread(lorogo, "log", "ship", str(data), url, "--server", "gone", cwd=tmp_path))
    shutil.rmtree(data)
    async with empty_nats(tmp_path / "new") as nats:
        done = await asyncio.to_thread(
            lorogo, "restore", "--journal", url, "--nats", nats.url, "--json", cwd=tmp_path
        )
        assert said_json(done)["complete"] is True
        async with serving(nats, tmp_path / "fresh") as client:
            assert await text_of(client, "minutes") == "one two "


def _updates(data: Path, document_id: str) -> set[tuple[str, str]]:
    found = set()
    for source in find(str(data)):
        for stored in source.records(document_id):
            record = decode(stored.payload)
            if isinstance(record, UpdateRecord):
                found.add((record.log_id, record.digest))
    return found


def test_a_folder_without_a_journal_is_refused_with_one_sentence(tmp_path: Path) -> None:
    """So is one that does not exist, a time that is none, and one in the future."""
    assert "there is no journal in" in refused(lorogo("restore", "--journal", str(tmp_path), cwd=tmp_path))
    nowhere = lorogo("restore", "--journal", str(tmp_path / "x"), cwd=tmp_path)
    assert "is not a folder" in refused(nowhere)
    assert "is neither a time" in refused(
        lorogo("restore", "--journal", str(tmp_path), "--at", "soon", cwd=tmp_path)
    )
    assert "is in the future" in refused(
        lorogo("restore", "--journal", str(tmp_path), "--at", "2999-01-01T00:00", cwd=tmp_path)
    )
    assert "--document" in refused(lorogo("restore", "--journal", str(tmp_path), "--to", "x", cwd=tmp_path))

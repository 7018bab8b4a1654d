"""Documents over HTTP, with a real server behind the gateway."""

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from loro import ExportMode, LoroDoc

from lorogo_client import DocumentApi
from lorogo_gateway.documents.operations import operations
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol.messages import subjects
from lorogo_protocol.status import Failed
from lorogo_transport.stores.catalogue import rows
from lorogo_transport.stores.statuses import Statuses
from tests.client.support import client_of, new_world
from tests.gateway.http_support import Gate, gate, gate_of, http_of, made, problem
from tests.server.poison import forged

__all__ = ["gate"]


async def test_json_goes_in_and_comes_out(gate: Gate) -> None:
    """PUT makes the roots by their types and GET gives them back; the receipt is that of an ACK."""
    content = {
        "body": "hällo",
        "tasks": [{"title": "write", "done": False, "n": 1, "x": None}],
        "a.b~c": {"k": [1, 2.5]},
    }
    response = await gate.http.put("/v1/documents/doc", json=content)
    assert response.status_code == 201
    receipt = response.json()
    assert receipt["document"] == "doc"
    assert receipt["durability"] == "journal"
    assert receipt["sequence"] > 0
    assert receipt["lease"] > 0
    assert response.headers["etag"] == f'"{receipt["version"]}"'
    got = await gate.http.get("/v1/documents/doc")
    assert got.json() == content
    assert got.headers["etag"] == response.headers["etag"]
    assert got.headers["vary"] == "Accept"
    assert got.headers["cache-control"] == "no-cache"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert (await gate.client.document("doc").get())["value"] == content


async def test_put_is_only_for_empty_documents(gate: Gate) -> None:
    """JSON or a snapshot into a document with content is 409, and nothing of it changes."""
    await made(gate)
    problem(await gate.http.put("/v1/documents/doc", json={"other": "x"}), 409, "conflict")
    snapshot = (
        await gate.http.get("/v1/documents/doc", headers={"accept": "application/octet-stream"})
    ).content
    octets = {"content-type": "application/octet-stream"}
    problem(await gate.http.put("/v1/documents/doc", content=snapshot, headers=octets), 409, "conflict")
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello"}


async def test_a_snapshot_that_does_not_decode_creates_no_document(gate: Gate) -> None:
    """Also if its checksum fits: PUT is 422, and neither a status nor a message is written."""
    doc = LoroDoc()
    doc.get_text("t").insert(0, "hello")
    payload = forged(doc.export(ExportMode.Snapshot()))
    octets = {"content-type": "application/octet-stream"}
    problem(await gate.http.put("/v1/documents/none", content=payload, headers=octets), 422, "invalid-update")
    assert await rows(gate.client.transport, now_ns=0) == []
    problem(await gate.http.get("/v1/documents/none"), 404, "not-found")


@pytest.mark.parametrize("content", [{"a": {}}, {"a": {}, "b": [], "c": ""}])
async def test_empty_roots_alone_are_not_called_saved(gate: Gate, content: dict[str, object]) -> None:
    """Loro keeps none of them: 422, and there is no document. Beside others they are left out."""
    problem(await gate.http.put("/v1/documents/doc", json=content), 422, "nothing-to-store")
    problem(await gate.http.get("/v1/documents/doc"), 404, "not-found")
    assert await made(gate, content={**content, "body": "hello"})
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello"}
    assert (await gate.http.put("/v1/documents/new", json={})).status_code == 201
    assert (await gate.http.get("/v1/documents/new")).json() == {}


async def test_only_a_few_documents_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for their turn, and are 503 when it does not come; what is not asked in full needs none."""
    reading, go_on = asyncio.Event(), asyncio.Event()
    snapshot = DocumentApi.snapshot

    async def held(self: DocumentApi, *what: Any, **more: Any) -> tuple[bytes, bytes]:
        reading.set()
        await go_on.wait()
        return await snapshot(self, *what, **more)

    async with gate_of(GatewaySettings(call_seconds=0.5, reads_max=1)) as gate:
        version = await made(gate)
        monkeypatch.setattr(DocumentApi, "snapshot", held)
        octets = {"accept": "application/octet-stream"}
        first = asyncio.create_task(gate.http.get("/v1/documents/doc", headers=octets))
        await reading.wait()
        late = await gate.http.get("/v1/documents/doc")
        problem(late, 503, "busy")
        assert late.headers["retry-after"] == "1"
        same = await gate.http.get("/v1/documents/doc", headers={"if-none-match": f'"{version}"'})
        assert same.status_code == 304
        waiting = asyncio.create_task(gate.http.get("/v1/documents/doc"))
        go_on.set()
        assert (await first).status_code == 200
        assert (await waiting).json() == {"body": "hello"}


async def test_a_patch_that_changes_nothing_keeps_the_version(gate: Gate) -> None:
    """That is how it shows: an empty root is not stored, nor is a value that is there already."""
    version = await made(gate)
    for operation in (
        {"op": "add", "path": "/m", "value": {}},
        {"op": "test", "path": "/body", "value": "hello"},
    ):
        receipt = await gate.http.patch("/v1/documents/doc", json=[operation])
        assert receipt.status_code == 200
        assert receipt.json()["version"] == version


async def test_an_empty_document_that_exists_can_be_filled(gate: Gate) -> None:
    """PUT answers 201 for a new document and 200 for one that was there."""
    async with gate.client.open("doc"):
        pass
    assert (await gate.http.get("/v1/documents/doc")).json() == {}
    response = await gate.http.put("/v1/documents/doc", json={"body": "x"})
    assert response.status_code == 200


async def test_a_snapshot_goes_out_and_in(gate: Gate) -> None:
    """`Accept: application/octet-stream` gives a Loro snapshot, and PUT takes one."""
    await made(gate, content={"body": "hello", "list": [1]})
    octets = "application/octet-stream"
    out = await gate.http.get("/v1/documents/doc", headers={"accept": octets})
    assert out.headers["content-type"] == octets
    doc = LoroDoc()
    doc.import_(out.content)
    assert doc.get_deep_value() == {"body": "hello", "list": [1]}
    put = await gate.http.put("/v1/documents/copy", content=out.content, headers={"content-type": octets})
    assert put.status_code == 201
    assert put.headers["etag"] == out.headers["etag"]
    assert (await gate.http.get("/v1/documents/copy")).json() == {"body": "hello", "list": [1]}
    for junk in (b"", b"junk", out.content[:-7]):
        refused = await gate.http.put("/v1/documents/junk", content=junk, headers={"content-type": octets})
        problem(refused, 422, "invalid-update")
    problem(await gate.http.get("/v1/documents/junk"), 404, "not-found")


async def test_a_get_creates_nothing(gate: Gate) -> None:
    """Whatever is asked of a document that never was is 404, and leaves no trace."""
    requests = [
        gate.http.get("/v1/documents/none"),
        gate.http.get("/v1/documents/none/history"),
        gate.http.get("/v1/documents/none/status"),
        gate.http.delete("/v1/documents/none"),
        gate.http.post("/v1/documents/none/restore"),
        gate.http.post("/v1/documents/none/reset"),
        gate.http.post("/v1/documents/none/fork", json={"to": "other"}),
        gate.http.post("/v1/documents/none/revert", json={"at": "10m"}),
    ]
    for request in requests:
        problem(await request, 404, "not-found")
    assert (await gate.http.get("/v1/documents")).json() == {"documents": [], "next": None}


async def test_an_etag_is_a_version(gate: Gate) -> None:
    """If-None-Match saves the body while nothing has changed, also weakly, in a list, and for JSONPath."""
    version = await made(gate)
    for have in (f'"{version}"', f'W/"{version}"', f'"vAA", "{version}"', "*"):
        response = await gate.http.get("/v1/documents/doc", headers={"if-none-match": have})
        assert response.status_code == 304, have
        assert response.content == b""
        assert response.headers["etag"] == f'"{version}"'
    assert (await gate.http.get("/v1/documents/doc", headers={"if-none-match": '"vAA"'})).status_code == 200
    at = {"path": "$.body", "at": version}
    headers = {"if-none-match": f'"{version}"'}
    assert (await gate.http.get("/v1/documents/doc", params=at, headers=headers)).status_code == 304
    await gate.http.patch("/v1/documents/doc", json=[{"op": "add", "path": "/body/-", "value": "!"}])
    changed = await gate.http.get("/v1/documents/doc", headers=headers)
    assert changed.status_code == 200
    assert changed.headers["etag"] != f'"{version}"'
    problem(
        await gate.http.get("/v1/documents/doc", headers={"if-none-match": "v1"}), 400, "invalid-parameter"
    )


async def test_paths_select(gate: Gate) -> None:
    """`path` may be repeated: for each of them the values that it selects."""
    await made(gate, content={"tasks": [{"t": "a"}, {"t": "b"}], "body": "x"})
    query = {"path": ["$.tasks[*].t", "$.nothing", "$.body"]}
    response = await gate.http.get("/v1/documents/doc", params=query)
    assert response.json() == [["a", "b"], [], ["x"]]
    for bad in ("$.[", "$..[?match(@.t, 'a*')]", "body"):
        problem(await gate.http.get("/v1/documents/doc", params={"path": bad}), 422, "invalid-path")
    octets = {"accept": "application/octet-stream"}
    both = await gate.http.get("/v1/documents/doc", params={"path": "$.body"}, headers=octets)
    problem(both, 400, "invalid-parameter")


async def test_the_past_can_be_read(gate: Gate) -> None:
    """`at` is a version, a time or an age, for JSON and for snapshots; what never was is 404."""
    old = await made(gate)
    receipt = await gate.http.patch(
        "/v1/documents/doc", json=[{"op": "replace", "path": "/body", "value": "new"}]
    )
    new = receipt.json()["version"]
    then = await gate.http.get("/v1/documents/doc", params={"at": old})
    assert then.json() == {"body": "hello"}
    assert then.headers["etag"] == f'"{old}"'
    assert (await gate.http.get("/v1/documents/doc", params={"at": new})).json() == {"body": "new"}
    here = datetime.now(timezone(timedelta(hours=1))).isoformat()
    utc = datetime.now(UTC).isoformat()
    for now in ("now", "0s", here, utc):
        assert (await gate.http.get("/v1/documents/doc", params={"at": now})).json() == {"body": "new"}
    raw = f"/v1/documents/doc?at={here}"  # a plus without percent-encoding
    assert (await gate.http.get(raw)).json() == {"body": "new"}
    octets = {"accept": "application/octet-stream"}
    past = await gate.http.get("/v1/documents/doc", params={"at": old}, headers=octets)
    doc = LoroDoc()
    doc.import_(past.content)
    assert doc.get_text("body").to_string() == "hello"
    assert "etag" not in past.headers
    for never in ("10m", "999999w", "vAA1", "v_____w", "vAQEBAQ", "1970-01-02T00:00:00Z"):
        problem(await gate.http.get("/v1/documents/doc", params={"at": never}), 404, "unknown-version")
        asked = await gate.http.get("/v1/documents/doc", params={"at": never}, headers=octets)
        problem(asked, 404, "unknown-version")
        body = {"to": "copy", "at": never}
        problem(await gate.http.post("/v1/documents/doc/fork", json=body), 404, "unknown-version")
        reverted = await gate.http.post("/v1/documents/doc/revert", json={"at": never})
        problem(reverted, 404, "unknown-version")
        if never.startswith("v"):
            sentence = f"'{never}' is not a version of this document; its history lists them"
            assert reverted.json()["detail"] == asked.json()["detail"] == sentence
    for bad in ("soon", "", "v", "10m\n"):
        refused = await gate.http.get("/v1/documents/doc", params={"at": bad})
        problem(refused, 400, "invalid-moment")
        assert "is neither a time (2026-11-16T10:30:00Z" in refused.json()["detail"]
    no_day = await gate.http.get("/v1/documents/doc", params={"at": "2026-02-30T00:00:00Z"})
    problem(no_day, 422, "invalid-moment")
    for local in ("2026-11-16", "2026-11-16T10:30", "2026-11-16T10:30:00.5"):
        refused = await gate.http.get("/v1/documents/doc", params={"at": local})
        problem(refused, 400, "invalid-moment")
        assert refused.json()["detail"] == (
            f"'{local}' has no zone: write a time with its zone, as in 2026-11-16T10:30:00Z"
        )
    ahead = {"at": "2069-01-01T00:00:00+01:00"}
    for refused in (
        await gate.http.get("/v1/documents/doc", params=ahead),
        await gate.http.post("/v1/documents/doc/revert", json=ahead),
        await gate.http.post("/v1/documents/doc/fork", json={"to": "copy", **ahead}),
    ):
        problem(refused, 422, "invalid-moment")
        assert "is in the future: it is 2" in refused.json()["detail"]


async def test_a_patch_is_all_or_nothing(gate: Gate) -> None:
    """A patch that does not apply is 422 and changes nothing; one that is no patch is 400."""
    await made(gate)
    patch = {"content-type": "application/json-patch+json"}
    ok = [{"op": "add", "path": "/tasks", "value": [1]}, {"op": "test", "path": "/tasks/0", "value": 1}]
    response = await gate.http.patch("/v1/documents/doc", content=json.dumps(ok), headers=patch)
    assert response.status_code == 200
    assert response.headers["etag"] == f'"{response.json()["version"]}"'
    bad = [{"op": "add", "path": "/x", "value": "y"}, {"op": "test", "path": "/tasks/0", "value": 2}]
    problem(await gate.http.patch("/v1/documents/doc", json=bad), 422, "patch-failed")
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello", "tasks": [1]}
    malformed: list[object] = [
        {},
        [{"op": "add", "path": "/x"}],
        [{"op": "copy", "path": "/x"}],
        [{"op": "jump", "path": "/x"}],
        [{"op": "remove", "path": "x"}],
        [{"op": "remove", "path": "/~2"}],
        [1],
        [{"op": "remove", "path": "/x"}] * 10_001,
    ]
    for one in malformed:
        problem(await gate.http.patch("/v1/documents/doc", json=one), 400, "invalid-body")


async def test_if_match_guards_a_patch(gate: Gate) -> None:
    """With If-Match the patch is applied to that version or not at all."""
    version = await made(gate)
    patch = [{"op": "add", "path": "/body/-", "value": "!"}]
    for other in ('"vAA"', f'W/"{version}"', '"x", "y"'):
        response = await gate.http.patch("/v1/documents/doc", json=patch, headers={"if-match": other})
        problem(response, 412, "precondition-failed")
    right = {"if-match": f'"vAA", "{version}"'}
    assert (await gate.http.patch("/v1/documents/doc", json=patch, headers=right)).status_code == 200
    problem(await gate.http.patch("/v1/documents/doc", json=patch, headers=right), 412, "precondition-failed")
    assert (
        await gate.http.patch("/v1/documents/doc", json=patch, headers={"if-match": "*"})
    ).status_code == 200
    refused = await gate.http.patch("/v1/documents/none", json=patch, headers={"if-match": "*"})
    problem(refused, 412, "precondition-failed")
    assert (await gate.http.get("/v1/documents/none")).status_code == 404
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello!!"}


async def test_of_two_patches_with_one_version_one_wins(gate: Gate) -> None:
    """If-Match is a compare-and-swap at the owner, not a look before."""
    version = await made(gate)
    patch = [{"op": "add", "path": "/body/-", "value": "!"}]
    headers = {"if-match": f'"{version}"'}
    responses = await asyncio.gather(
        *(gate.http.patch("/v1/documents/doc", json=patch, headers=headers) for _ in range(5))
    )
    assert sorted(response.status_code for response in responses) == [200, 412, 412, 412, 412]


async def test_a_patch_creates_the_document(gate: Gate) -> None:
    """PATCH on a document that never was makes it."""
    response = await gate.http.patch("/v1/documents/new", json=[{"op": "add", "path": "/b", "value": "x"}])
    assert response.status_code == 200
    assert (await gate.http.get("/v1/documents/new")).json() == {"b": "x"}


async def test_delete_restore_purge(gate: Gate) -> None:
    """A deleted document is 410 until it is restored; a purged one for ever."""
    await made(gate)
    problem(await gate.http.post("/v1/documents/doc/restore"), 409, "conflict")
    for _ in range(2):
        response = await gate.http.delete("/v1/documents/doc")
        assert response.json() == {"document": "doc", "deleted": True, "erased": False}
    problem(await gate.http.get("/v1/documents/doc"), 410, "deleted")
    problem(await gate.http.get("/v1/documents/doc/history"), 410, "deleted")
    problem(await gate.http.put("/v1/documents/doc", json={"a": "b"}), 410, "deleted")
    problem(
        await gate.http.patch("/v1/documents/doc", json=[{"op": "add", "path": "/b", "value": "x"}]),
        410,
        "deleted",
    )
    assert (await gate.http.get("/v1/documents/doc/status")).json()["deleted"] is True
    assert (await gate.http.post("/v1/documents/doc/restore")).json() == {"document": "doc", "restored": True}
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello"}
    purged = await gate.http.delete("/v1/documents/doc", params={"purge": "true"})
    assert purged.json() == {"document": "doc", "deleted": True, "erased": True}
    problem(await gate.http.get("/v1/documents/doc"), 410, "deleted")
    problem(await gate.http.post("/v1/documents/doc/restore"), 404, "not-found")
    assert (await gate.http.delete("/v1/documents/doc")).json()["erased"] is True


async def test_fork_revert_history(gate: Gate) -> None:
    """A fork has the content of then, a revert is a new change, and the history tells versions."""
    old = await made(gate)
    await gate.http.patch("/v1/documents/doc", json=[{"op": "replace", "path": "/body", "value": "new"}])
    forked = await gate.http.post("/v1/documents/doc/fork", json={"to": "copy", "at": old})
    assert forked.status_code == 201
    assert forked.json() == {"document": "copy", "forked_from": "doc"}
    assert (await gate.http.get(forked.headers["location"])).json() == {"body": "hello"}
    problem(await gate.http.post("/v1/documents/doc/fork", json={"to": "copy"}), 409, "conflict")
    problem(await gate.http.post("/v1/documents/doc/fork", json={"to": "-x"}), 400, "invalid-body")
    reverted = await gate.http.post("/v1/documents/doc/revert", json={"at": old})
    assert reverted.json()["document"] == "doc"
    assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello"}
    history = (await gate.http.get("/v1/documents/doc/history", params={"limit": 1})).json()
    assert history["document"] == "doc"
    assert [one["version"] for one in history["versions"]] == [reverted.json()["version"]]
    assert history["versions"][0]["time"].endswith("+00:00")


async def test_status_and_reset(gate: Gate) -> None:
    """The status has the stored and the live state of a document; reset takes a document out of ERROR."""
    await made(gate)
    status = (await gate.http.get("/v1/documents/doc/status")).json()
    assert status["state"] == "UP"
    assert status["owner"]["server"] == status["server"]
    assert status["owner"]["durability"] == "journal"
    assert status["wal_messages"] == 1
    assert status["last_edit"].endswith("+00:00")
    assert (await gate.http.post("/v1/documents/doc/reset")).json() == {"document": "doc", "reset": False}
    statuses = Statuses(gate.world.connect())
    await statuses.write("broken", Failed("trace-1", 1), expected_revision=0)
    broken = (await gate.http.get("/v1/documents/broken/status")).json()
    assert (broken["state"], broken["trace"], broken["owner"]) == ("ERROR", "trace-1", None)
    refused = await gate.http.get("/v1/documents/broken")
    problem(refused, 503, "document-failed")
    assert "retry-after" not in refused.headers
    reset = await gate.http.post("/v1/documents/broken/reset")
    assert reset.json() == {"document": "broken", "reset": True}
    assert (await gate.http.get("/v1/documents/broken")).json() == {}


async def test_no_server_runs() -> None:
    """Without a server a document that is stored is 503 with Retry-After; one that is not is still 404."""
    async with gate_of(GatewaySettings(call_seconds=0.3), serving=False) as gate:
        wal = gate.world.connect().stream(subjects.WAL_STREAM)
        await wal.append(subjects.wal("doc"), b"x")
        refused = await gate.http.get("/v1/documents/doc")
        problem(refused, 503, "not-served")
        assert int(refused.headers["retry-after"]) > 0
        problem(await gate.http.get("/v1/documents/none"), 404, "not-found")
        assert (await gate.http.get("/v1/documents/doc/status")).json()["owner"] is None


async def test_a_read_only_gateway_writes_nothing() -> None:
    """With `read_only` whatever is not a GET is 403."""
    async with gate_of(GatewaySettings(read_only=True)) as gate:
        await gate.client.document("doc").patch([{"op": "add", "path": "/b", "value": "x"}])
        for request in (
            gate.http.patch("/v1/documents/doc", json=[]),
            gate.http.put("/v1/documents/new", json={}),
            gate.http.delete("/v1/documents/doc"),
            gate.http.post("/v1/documents/doc/reset"),
        ):
            problem(await request, 403, "read-only")
        assert (await gate.http.get("/v1/documents/doc")).json() == {"b": "x"}


async def test_the_list_is_paged_by_id(gate: Gate) -> None:
    """Pages follow each other by `next`, may begin with a prefix, and tell state, sizes and last edit."""
    for name in ("a-1", "a-2", "a-3", "b-1"):
        await made(gate, name)
    await gate.client.document("a-2").compact()
    await gate.http.delete("/v1/documents/a-3")
    first = (await gate.http.get("/v1/documents", params={"limit": 2, "prefix": "a"})).json()
    assert [row["document"] for row in first["documents"]] == ["a-1", "a-2"]
    assert first["next"] == "a-2"
    params = {"limit": 2, "prefix": "a", "after": first["next"]}
    second = (await gate.http.get("/v1/documents", params=params)).json()
    assert [row["document"] for row in second["documents"]] == ["a-3"]
    assert second["next"] is None
    one, two = first["documents"]
    assert (one["state"], one["wal_messages"], one["snapshot_bytes"]) == ("UP", 1, 0)
    assert two["snapshot_bytes"] > 0
    assert one["server"]
    assert one["lease"] > 0
    assert one["last_edit"] <= two["last_edit"] <= second["documents"][0]["last_edit"]
    assert second["documents"][0]["deleted"] is True
    everything = (await gate.http.get("/v1/documents", params={"after": "a-3"})).json()
    assert [row["document"] for row in everything["documents"]] == ["b-1"]
    for bad in ({"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"limit": "1e2"}, {"limit": "٣"}):
        problem(await gate.http.get("/v1/documents", params=bad), 400, "invalid-parameter")


async def test_a_page_of_ten_thousand_documents_is_cheap() -> None:
    """Every document comes once over all pages; a page reads the bodies of its own documents only."""
    world = await new_world()
    transport = world.connect()
    wal, rng = transport.stream(subjects.WAL_STREAM), random.Random(7)
    names = sorted(f"doc-{rng.getrandbits(40):x}" for _ in range(10_000))
    for name in names:
        await wal.append_unconfirmed(subjects.wal(name), b"x" * 100)
    await wal.append(subjects.wal(names[0]), b"last")
    async with client_of(world) as client:
        settings = GatewaySettings()
        async with http_of(operations(client, settings), settings) as http:
            seen, after, pages = [], "", 0
            while True:
                page = (await http.get("/v1/documents", params={"limit": 1000, "after": after})).json()
                seen += [row["document"] for row in page["documents"]]
                pages += 1
                if page["next"] is None:
                    break
                after = page["next"]
    assert seen == names
    assert pages == 10

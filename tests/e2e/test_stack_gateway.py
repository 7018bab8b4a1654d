"""Browsers and curl on an open and on a closed lorogo: the gateway does the same on both."""

import asyncio
import hashlib
import json
import random
import secrets

import httpx
import pytest
from loro import LoroDoc

from lorogo_gateway.frames import Crdt, Status
from tests.e2e.stacks import Stack, same
from tests.e2e.support import eventually
from tests.gateway.npm import npm_clients
from tests.gateway.support import Peer, presence, states, text_of, type_in

pytestmark = pytest.mark.nats

OCTETS = {"content-type": "application/octet-stream"}
LARGE = {f"k{number}": random.Random(number).randbytes(32_768).hex() for number in range(112)}  # 7 MiB


def well(answer: httpx.Response, status: int = 200) -> httpx.Response:
    assert answer.status_code == status, answer.text[:500]
    return answer


async def test_a_document_of_several_windows_is_written_and_read(stack: Stack, name: str) -> None:
    """A transfer above 4 MiB finishes in both directions, as JSON and as a snapshot."""
    path = f"/v1/documents/{name}"
    async with stack.http() as http:
        well(await http.put(path, json=LARGE), 201)
        assert same(well(await http.get(path)).json(), LARGE)
        snapshot = well(await http.get(path, headers={"accept": OCTETS["content-type"]})).content
        well(await http.put(f"{path}-copy", content=snapshot, headers=OCTETS), 201)
        assert same(well(await http.get(f"{path}-copy")).json(), LARGE)


async def test_a_document_is_changed_listed_forked_reverted_and_deleted(stack: Stack, name: str) -> None:
    """Each operation of `/v1/documents` works on both stacks."""
    path = f"/v1/documents/{name}"
    async with stack.http() as http:
        first = well(await http.put(path, json={"t": "one"}), 201).json()["version"]
        well(await http.patch(path, json=[{"op": "replace", "path": "/t", "value": "two"}]))
        assert well(await http.get(path, params={"at": first})).json() == {"t": "one"}
        assert well(await http.get(f"{path}/history")).json()["versions"]
        well(await http.post(f"{path}/fork", json={"to": f"{name}-copy"}), 201)
        well(await http.post(f"{path}/revert", json={"at": first}))
        assert well(await http.get(path)).json() == {"t": "one"}
        assert well(await http.get(f"{path}-copy")).json() == {"t": "two"}
        assert well(await http.get(f"{path}/status")).json()["owner"]
        listed = well(await http.get("/v1/documents", params={"prefix": name})).json()["documents"]
        assert {name, f"{name}-copy"} <= {row["document"] for row in listed}
        well(await http.delete(path))
        assert (await http.get(path)).status_code == 410
        well(await http.post(f"{path}/restore"))
        assert well(await http.get(path)).json() == {"t": "one"}
        well(await http.delete(path, params={"purge": "true"}))
        assert (await http.get(path)).status_code == 410


async def test_operators_see_servers_figures_and_sizes(stack: Stack, name: str) -> None:
    """The pages behind the dashboard answer, and probes find the gateway ready."""
    async with stack.http() as http:
        well(await http.put(f"/v1/documents/{name}", json={"t": "one"}), 201)
        paths = ("servers", "overview", "overview/samples", "rejected", f"documents/{name}/sizes")
        for path in (*(f"/v1/{path}" for path in paths), "/metrics", "/readyz", "/healthz"):
            well(await http.get(path))


async def test_accepted_updates_come_as_events(stack: Stack, name: str) -> None:
    """The feed replays what was accepted before, and goes on."""
    path = f"/v1/documents/{name}"
    async with stack.http() as http, asyncio.timeout(30):
        well(await http.put(path, json={"t": "one"}), 201)
        seen = 0
        async with http.stream("GET", "/v1/feed", params={"since": "0", "document": name}) as events:
            assert events.status_code == 200
            async for line in events.aiter_lines():
                if (
                    line.startswith("data:")
                    and json.loads(line.removeprefix("data:")).get("document") == name
                ):
                    seen += 1
                    if seen == 2:
                        break
                    well(await http.patch(path, json=[{"op": "replace", "path": "/t", "value": "two"}]))
    assert seen == 2


async def test_browsers_type_and_show_their_cursors(stack: Stack, name: str) -> None:
    """Frames of documents, of presence and of kept presence reach the other browser."""
    ann_doc, bob_doc = LoroDoc(), LoroDoc()
    async with stack.socket() as one, stack.socket() as two:
        ann, bob = Peer(one), Peer(two)
        for crdt in (Crdt.LORO, Crdt.EPHEMERAL, Crdt.PERSISTED):
            await ann.join(name, crdt=crdt)
            await bob.join(name, crdt=crdt)
        assert await ann.save(type_in(ann_doc, "hello"), room=name) is Status.OK
        for update in await bob.received(name):
            bob_doc.import_(update)
        assert text_of(bob_doc) == "hello"
        for crdt in (Crdt.EPHEMERAL, Crdt.PERSISTED):
            assert await ann.save(presence("ann", crdt.name), room=name, crdt=crdt) is Status.OK
            assert states(*await bob.received(name, crdt)) == {"ann": crdt.name}
    async with stack.socket() as three:
        eve = Peer(three)
        await eve.join(name, crdt=Crdt.PERSISTED)
        assert states(*await eve.received(name, Crdt.PERSISTED)) == {"ann": Crdt.PERSISTED.name}


@pytest.mark.node
async def test_a_browser_joins_a_document_of_several_windows(stack: Stack, name: str) -> None:
    """7 MiB reach a new browser, in fragments, as they are."""
    text = "".join(LARGE.values())
    async with stack.http() as http:
        well(await http.put(f"/v1/documents/{name}", json={"body": text}), 201)
    async with npm_clients() as npm:
        client = await npm.client(stack.socket_url)
        await client("join", room=name, auth=stack.token({name: "read"}) or "")
        facts = await client("facts", room=name)
    assert (facts["characters"], facts["sha256"]) == (len(text), hashlib.sha256(text.encode()).hexdigest())


@pytest.mark.node
async def test_npm_clients_and_a_python_session_converge(stack: Stack, name: str) -> None:
    """The unchanged npm client and the SDK edit one document; an update of 1.5 MiB goes up in fragments."""
    auth = stack.token({name: "write"}) or ""
    async with npm_clients() as npm, stack.client() as client:
        ann, bob = await npm.client(stack.socket_url), await npm.client(stack.socket_url)
        for one in (ann, bob):
            await one("join", room=name, auth=auth)
        assert await ann("type", room=name, text="from ann ") == 0
        async with client.open(name) as session:
            body = session.doc.get_text("body")
            await eventually(lambda: body.to_string() == "from ann ")
            body.insert(len(body), "from python ")
            session.commit()
            await session.flush(timeout=30)
            await bob("sees", room=name, words=["from ann ", "from python "])
        await bob("leave", room=name)  # who imports a long run of text is busy with it for long
        large = secrets.token_hex(3 << 18)
        assert await ann("type", room=name, text=large) == 0
        value = (await client.document(name).get())["value"]
        assert same(value, {"body": f"from ann from python {large}"})

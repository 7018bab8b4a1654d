"""`lorogo gateway` with keys, as operators run it: real processes on a closed NATS."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from lorogo_cli.connect import closed_folder
from lorogo_gateway import frames
from lorogo_gateway.frames import Crdt
from lorogo_protocol.access.tokens import peek
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli.support import Running, lorogo, refused, said
from tests.e2e.support import eventually
from tests.gateway.support import Peer

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(120)]

CLOSED = {"LOROGO_OPEN": ""}


@dataclass(frozen=True, slots=True)
class Place:
    """A closed NATS with an auth service, a server and a gateway."""

    folder: Path
    keys: Path
    nats: EmbeddedNats
    gateway: Running
    web: str

    def mint(self, *grants: str, expires: str = "1h") -> str:
        """A token, by the command that mints them."""
        options = [word for one in grants for word in ("--grant", one)]
        key = ("--key", str(self.keys / "tokens.jwk"), "--subject", "ann", "--expires", expires)
        return said(lorogo("token", "mint", *key, *options, cwd=self.folder)).strip()


def web_of(gateway: Running) -> str:
    found = re.search(r"http://\S+", gateway.wait_for("Ctrl-C"))
    assert found is not None
    return found[0]


def gateway_options(keys: Path, url: str) -> list[str]:
    named = ["--keys", str(keys / "keys.jwks"), "--nats-seed", str(keys / "gateway.seed")]
    return ["gateway", "--nats", url, "--port", "0", *named]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    keys = tmp_path / "keys"
    await asyncio.to_thread(lambda: said(lorogo("auth", "setup", str(keys), cwd=tmp_path)))
    accounts = (keys / "accounts.conf").read_text()
    async with EmbeddedNats(tmp_path / "nats", configuration=accounts) as nats:
        running: list[Running] = []

        def start(name: str, *options: str) -> Running:
            running.append(Running(options, cwd=tmp_path, name=name, env=CLOSED))
            return running[-1]

        try:
            there = ("--nats", nats.url, "--keys", str(keys / "keys.jwks"))
            start("auth", "auth", "--seeds", str(keys), *there).wait_for("Ctrl-C")
            seed = ("--nats-seed", str(keys / "server.seed"))
            start("server", "serve", *there, *seed, "--data", "data").wait_for_log("serving")
            gateway = start("gateway", *gateway_options(keys, nats.url))
            yield Place(tmp_path, keys, nats, gateway, await asyncio.to_thread(web_of, gateway))
        finally:
            for one in running:
                one.kill()


def asked(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_tokens_open_documents_and_nothing_else(place: Place) -> None:
    """Written by one, read by another, kept from a third; revoked, a socket is closed; all of it real."""
    writer, reader, other = place.mint("plan=write"), place.mint("plan=read"), place.mint("other=admin")
    operator = place.mint("*=admin")
    async with httpx.AsyncClient(base_url=place.web, timeout=20) as http:

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await eventually(ready)
        put = await http.put("/v1/documents/plan", headers=asked(writer), json={"t": "hello"})
        assert put.status_code == 201, put.text
        got = await http.get("/v1/documents/plan", headers=asked(reader))
        assert got.json() == {"t": "hello"}
        patch = [{"op": "add", "path": "/m", "value": {"a": 1}}]
        for token, status in ((reader, 403), (other, 403), (writer, 200)):
            answer = await http.patch("/v1/documents/plan", headers=asked(token), json=patch)
            assert answer.status_code == status, answer.text
        assert (await http.get("/v1/documents/plan")).status_code == 401
        assert (await http.get("/v1/documents/plan/history", headers=asked(reader))).status_code == 200
        assert (await http.get("/v1/documents/plan/status", headers=asked(reader))).json()["owner"]
        assert (await http.get("/v1/overview", headers=asked(operator))).status_code == 200
        assert (await http.get("/metrics", headers=asked(operator))).status_code == 200
        listed = (await http.get("/v1/documents", headers=asked(reader))).json()["documents"]
        assert [one["document"] for one in listed] == ["plan"]
        url = f"{place.web.replace('http', 'ws', 1)}/ws"
        async with connect(url, additional_headers=asked(reader)) as socket:
            peer = Peer(socket)
            assert (await peer.join("plan")).permission == "read"
            await peer.join("plan", crdt=Crdt.EPHEMERAL)
            seed = str(place.keys / "operator.seed")
            revoke = ("token", "revoke", peek(reader).token_id, "--nats", place.nats.url, "--nats-seed", seed)
            said(await asyncio.to_thread(lambda: lorogo(*revoke, cwd=place.folder)))
            code, reason = await peer.closed()
            assert (code, reason.partition(":")[0]) == (4401, "token-revoked")
            assert [frame for frame in peer.waiting if isinstance(frame, frames.RoomError)]
        assert (await http.get("/v1/documents/plan", headers=asked(reader))).status_code == 401
        erased = await http.delete("/v1/documents/plan?purge=true", headers=asked(operator))
        assert erased.status_code == 200, erased.text
    assert place.gateway.stop(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in place.gateway.err.read_text().splitlines()]
    audited = [(line["message"], line["subject"], line["outcome"]) for line in lines if "outcome" in line]
    assert ("erase", "ann", "done") in audited
    assert ("dashboard", "ann", "done") in audited
    for token in (writer, reader, other, operator):
        assert token.rpartition(".")[2] not in place.gateway.err.read_text()


def test_it_is_closed_by_default(tmp_path: Path) -> None:
    """Without keys and without --open: one sentence. With both: another."""
    words = refused(lorogo("gateway", cwd=tmp_path, env=CLOSED))
    assert "--keys" in words and "--open" in words
    keys = tmp_path / "keys"
    said(lorogo("auth", "setup", str(keys), cwd=tmp_path))
    both = refused(lorogo("gateway", "--open", "--keys", str(keys / "keys.jwks"), cwd=tmp_path, env=CLOSED))
    assert "--open contradicts --keys" in both


async def test_it_says_that_a_closed_nats_wants_its_seed(tmp_path: Path) -> None:
    """At once, instead of trying for ever."""
    keys = closed_folder.make(tmp_path / "keys")
    async with EmbeddedNats(tmp_path / "nats", configuration=keys.accounts) as nats:
        arguments = ("gateway", "--keys", "keys/keys.jwks", "--nats", nats.url, "--port", "0")
        words = refused(await asyncio.to_thread(lambda: lorogo(*arguments, cwd=tmp_path, env=CLOSED)))
    assert "--nats-seed" in words and "gateway.seed" in words


async def test_it_does_not_open_a_nats_that_is_closed(tmp_path: Path) -> None:
    """With --open and a seed, every client would have the rights of the seed."""
    keys = closed_folder.make(tmp_path / "keys")
    async with EmbeddedNats(tmp_path / "nats", configuration=keys.accounts) as nats:
        arguments = (
            "gateway",
            "--open",
            "--nats",
            nats.url,
            "--port",
            "0",
            "--nats-seed",
            "keys/gateway.seed",
        )
        words = refused(await asyncio.to_thread(lambda: lorogo(*arguments, cwd=tmp_path, env=CLOSED)))
    assert "this NATS is closed" in words
    assert "--keys" in words


async def test_it_refuses_a_nats_that_accepts_anonymous_clients(
    nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    """Tokens would be useless."""
    keys = tmp_path / "keys"

    def run() -> str:
        said(lorogo("auth", "setup", str(keys), cwd=tmp_path))
        return refused(lorogo(*gateway_options(keys, nats_server.url), cwd=tmp_path, env=CLOSED))

    assert "accepts anonymous clients" in await asyncio.to_thread(run)


async def test_an_open_nats_that_comes_later_ends_it(tmp_path: Path) -> None:
    """The gateway waits, refuses every token, checks NATS once it is up, and ends with that sentence."""
    keys = tmp_path / "keys"
    await asyncio.to_thread(lambda: said(lorogo("auth", "setup", str(keys), cwd=tmp_path)))
    async with EmbeddedNats(tmp_path / "first") as first:
        url = first.url
    gateway = Running(gateway_options(keys, url), cwd=tmp_path, name="gateway", env=CLOSED)
    try:
        web = await asyncio.to_thread(web_of, gateway)
        async with httpx.AsyncClient(base_url=web) as http:
            token = said(
                await asyncio.to_thread(
                    lambda: lorogo(
                        *("token", "mint", "--key", str(keys / "tokens.jwk"), "--subject", "ann"),
                        *("--grant", "*=admin", "--expires", "1h"),
                        cwd=tmp_path,
                    )
                )
            ).strip()
            answer = await http.get("/v1/documents/plan", headers=asked(token))
            assert (answer.status_code, answer.json()["code"]) == (503, "token-unchecked")
            assert (await http.get("/readyz")).json()["reasons"] == [{"code": "nats-disconnected"}]
        async with EmbeddedNats(tmp_path / "second", port=int(url.rpartition(":")[2])):
            assert await asyncio.to_thread(gateway.process.wait, 30) == 2
        assert "accepts anonymous clients" in gateway.err.read_text()
    finally:
        gateway.kill()

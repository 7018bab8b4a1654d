"""examples/tokens: the backend as it is, before a real closed NATS, and what its tokens open."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest

import lorogo_client
from lorogo_client import NotAllowed
from tests.cli.support import Running
from tests.examples.running import SECONDS, module

pytestmark = [pytest.mark.nats, pytest.mark.slow, pytest.mark.timeout(300)]

ANA, BEN = ("ana", "correct horse"), ("ben", "battery staple")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's app, configured for a `lorogo dev --closed` in a process of its own."""
    options = ["dev", "--closed", "--port", "0", "--web-port", "0"]
    dev = Running(options, cwd=tmp_path, name="dev", env={"LOROGO_OPEN": ""})
    try:
        found = re.search(r"NATS +(nats://\S+)", dev.wait_for("Ctrl-C"))
        assert found is not None
        monkeypatch.setenv("LOROGO_NATS", found[1])
        monkeypatch.setenv("TOKENS_JWK", str(tmp_path / ".lorogo" / "closed" / "keys" / "tokens.jwk"))
        yield module("tokens/app.py")
    finally:
        dev.kill()


async def write(url: str, token: str, title: str) -> None:
    async with lorogo_client.connect(url, token=token) as client, client.open("minutes-1") as session:
        session.doc.get_text("title").insert(0, title)
        await session.flush(SECONDS)


async def read(url: str, token: str) -> tuple[str, bool]:
    async with lorogo_client.connect(url, token=token) as client, client.open("minutes-1") as session:
        with pytest.raises(NotAllowed):
            await client.document("board-1").get()
        return session.doc.get_text("title").to_string(), session.read_only


async def test_tokens_open_what_the_backend_says(backend: ModuleType) -> None:
    """Ana writes, Ben reads, neither more; who cannot prove who they are gets none; the backend reads."""
    url, app = backend.NATS, backend.app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://backend") as http,
    ):
        refused = [await http.post("/token")]
        refused += [await http.post("/token", auth=(name, "guess")) for name in ("ana", "nobody")]
        for answer in refused:
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic")
        ana = (await http.post("/token", auth=ANA)).json()
        assert ana["documents"] == {"board-*": "write", "minutes-*": "write"}
        await write(url, ana["token"], "Minutes")
        ben = (await http.post("/token", auth=BEN)).json()
        assert await read(url, ben["token"]) == ("Minutes", True)
        assert (await http.get("/titles/1", auth=BEN)).json() == {"asked_by": "ben", "title": "Minutes"}
        assert (await http.get("/titles/2", auth=BEN)).json() == {"asked_by": "ben", "title": None}
        assert (await http.get("/titles/1")).status_code == 401

"""An open and a closed lorogo as one thing: `lorogo dev` or `lorogo dev --closed`, with ways to reach it."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.asyncio.client import connect

import lorogo_client
from lorogo_cli.app import run
from lorogo_cli.connect import closed_folder
from lorogo_client import Client, ClientSettings, tokens
from lorogo_transport.auth import accounts
from tests.cli.support import Running

if TYPE_CHECKING:
    from lorogo_client.awaitables import AwaitableContext

KINDS = ("open", "closed")
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def well(self) -> str:
        """Its output, given that it succeeded."""
        assert self.code == 0, self.err
        return self.out


@dataclass(frozen=True, slots=True)
class Stack:
    """nats-server, server and gateway; everything below works alike whether tokens are needed or not."""

    kind: str
    folder: Path
    url: str
    web: str
    keys: closed_folder.ClosedFolder | None = field(default=None, repr=False)

    def token(self, documents: Mapping[str, str]) -> str | None:
        """A token that grants this, or None where none is needed."""
        if self.keys is None:
            return None
        key = tokens.load_key(self.keys.signing_key)
        return tokens.mint(key, subject="ann", documents=documents, expires=timedelta(hours=1))

    def client(self, settings: ClientSettings | None = None) -> "AwaitableContext[Client]":
        """An app's client: on a closed stack with a token alone, for every document."""
        return lorogo_client.connect(self.url, token=self.token({"*": "admin"}), settings=settings)

    def operator(self) -> "AwaitableContext[Client]":
        """An operator's client: on a closed stack with the operator's nkey, too."""
        seed = None if self.keys is None else self.keys.seeds[accounts.OPERATOR]
        return lorogo_client.connect(self.url, token=self.token({"*": "admin"}), seed=seed)

    @property
    def bearer(self) -> dict[str, str]:
        """The headers of a request that may do everything."""
        token = self.token({"*": "admin"})
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.web, timeout=SECONDS, headers=self.bearer)

    @property
    def socket_url(self) -> str:
        return f"ws{self.web.removeprefix('http')}/ws"

    def socket(self) -> connect:
        """A WebSocket to the gateway, to enter with `async with`."""
        return connect(self.socket_url, compression=None, max_size=None, additional_headers=self.bearer)

    def lorogo(self, *arguments: str) -> Said:
        """Run an operator's command in this process."""
        environment = {"LOROGO_NATS": self.url, "TMPDIR": str(self.folder)}
        if self.keys is not None:
            token = self.folder / "cli.token"
            token.touch(0o600)
            token.write_text(self.token({"*": "admin"}) or "")
            environment["LOROGO_TOKEN_FILE"] = str(token)
            environment["LOROGO_NATS_SEED_FILE"] = str(self.keys.path / f"{accounts.OPERATOR}.seed")
        out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in environment.items():
                patch.setenv(name, value)
            code = run(arguments)
        out.flush()
        return Said(code, out.buffer.getvalue().decode(), err.getvalue())


@contextmanager
def running(kind: str, folder: Path) -> Iterator[Stack]:
    """The stack of that kind; its processes are gone afterwards."""
    store = folder / "store"
    options = ["dev", "--port", "0", "--web-port", "0", "--store", str(store)]
    dev = Running([*options, *(["--closed"] if kind == "closed" else [])], cwd=folder, name="dev")
    try:
        screen = dev.wait_for("Try, in a second terminal")
        keys = closed_folder.read(store / "closed" / "keys") if kind == "closed" else None
        yield Stack(
            kind, folder, _found(r"NATS +(nats://\S+)", screen), _found(r"HTTP +(http://[^/]+)", screen), keys
        )
    finally:
        dev.stop()


def same(found: object, wanted: object) -> bool:
    """Compare large values outside an assertion, because pytest would compare them line by line."""
    return found == wanted


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]

"""An anonymous connection attempt finds out whether NATS accepts connections without credentials."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lorogo_transport.auth.anonymous_access import allows_anonymous
from lorogo_transport.errors import Unreachable
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.tls import TlsFiles, name_files
from tests.certificates import Authority

_INFO = b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"headers":true,"proto":1}\r\n'
_CLOSED = "authorization { user: ann, password: secret }"


async def test_an_open_server_accepts_anonymous_connections(nats_server: EmbeddedNats) -> None:
    """A nats-server without accounts accepts every connection, also where the address has a login."""
    assert await allows_anonymous(nats_server.url)
    assert await allows_anonymous(nats_server.url.replace("nats://", "nats://ann:secret@"))


async def test_a_closed_server_does_not(tmp_path: Path) -> None:
    """A right password in the address changes nothing: the check connects without it."""
    async with EmbeddedNats(tmp_path, configuration=_CLOSED) as nats:
        assert not await allows_anonymous(nats.url)
        assert not await allows_anonymous(nats.url.replace("nats://", "nats://ann:secret@"))


async def test_a_user_for_those_who_have_none_counts_as_open(tmp_path: Path) -> None:
    """no_auth_user gives anonymous connections a user: that counts as open."""
    users = "authorization { users: [{ user: ann, password: secret }] }, no_auth_user: ann"
    async with EmbeddedNats(tmp_path, configuration=users) as nats:
        assert await allows_anonymous(nats.url)


async def test_one_open_server_among_several_is_enough(tmp_path: Path, nats_server: EmbeddedNats) -> None:
    """And one that cannot be reached hides nothing."""
    async with EmbeddedNats(tmp_path, configuration=_CLOSED) as closed:
        assert await allows_anonymous(f"{closed.url},{nats_server.url}")
        assert await allows_anonymous(f"nats://127.0.0.1:1,{nats_server.url}")
        assert not await allows_anonymous(f"nats://127.0.0.1:1,{closed.url}")


async def test_an_unreachable_server_is_an_error() -> None:
    """A server that cannot be asked is neither open nor closed."""
    with pytest.raises(Unreachable, match="connection refused"):
        await allows_anonymous("nats://127.0.0.1:1")


async def _says(*words: bytes) -> tuple[asyncio.Server, str]:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for word in words:
            writer.write(word)
        if words and words[0] == _INFO:
            await reader.readuntil(b"PING\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    return server, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "words",
    [(), (b"HTTP/1.1 400 Bad Request\r\n\r\n",), (b"INFO {\r\n",), (b"x" * 200_000,), (_INFO, *[_INFO] * 20)],
    ids=["nothing", "http", "half", "endless", "info for ever"],
)
async def test_what_is_no_nats_gives_no_answer(words: tuple[bytes, ...]) -> None:
    """Silence, HTTP, half a greeting or too much of it: none is taken for a refusal."""
    server, url = await _says(*words)
    async with server:
        with pytest.raises(Unreachable, match="does not speak NATS"):
            await allows_anonymous(url, timeout=5)


async def test_who_greets_and_hangs_up_does_not_let_in() -> None:
    """A server that closes the connection when it sees no credentials refused them."""
    server, url = await _says(_INFO)
    async with server:
        assert not await allows_anonymous(url, timeout=5)


async def test_a_server_that_stays_silent_gives_no_answer() -> None:
    """The wait has an end, and it is not taken for a refusal."""
    done = asyncio.Event()

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_INFO)
        await done.wait()
        writer.close()

    speaking: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = silent
    server = await asyncio.start_server(speaking, "127.0.0.1", 0)
    try:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"no answer .* within 0\.2 s"):
            await allows_anonymous(url, timeout=0.2)
    finally:
        done.set()
        server.close()


async def test_the_anonymous_check_speaks_tls_where_required(tmp_path: Path) -> None:
    """The check trusts the authority that the address names, and presents no client certificate."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    cert, key = authority.sign("nats")
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}" }}\n'
    asking = f'tls {{ cert_file: "{cert}", key_file: "{key}", ca_file: "{authority.file}", verify: true }}\n'
    ours = authority.sign("client")
    files = TlsFiles(str(authority.file), str(ours[0]), str(ours[1]))
    for number, (configuration, expected) in enumerate(
        ((tls, True), (tls + _CLOSED, False), (asking, False), (asking + _CLOSED, False))
    ):
        async with EmbeddedNats(tmp_path / str(number), configuration=configuration) as nats:
            assert await allows_anonymous(name_files(nats.url, files)) == expected, configuration
            with pytest.raises(Unreachable, match="no TLS with"):
                await allows_anonymous(name_files(nats.url, TlsFiles(ca=str(other.file))))

"""An address that asks for TLS gets TLS, or nothing."""

import asyncio

import pytest

from lorogo_transport.embedded import EmbeddedNats
from lorogo_transport.errors import Unreachable
from lorogo_transport.jetstream import connect

_INFO = b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"headers":true,"proto":1}\r\n'


async def test_no_password_is_sent_to_a_server_without_tls() -> None:
    """tls:// at a plain server: refused before CONNECT leaves."""
    heard = bytearray()
    left = asyncio.Event()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_INFO)
        while data := await reader.read(1000):
            heard.extend(data)
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(Unreachable, match="offers no TLS"):
            await connect(f"tls://user:secret@127.0.0.1:{port}", timeout=2)
        await asyncio.wait_for(left.wait(), 5)
    finally:
        server.close()
    assert b"secret" not in heard
    assert b"CONNECT" not in heard


async def test_a_real_plain_server_is_refused_too(nats_server: EmbeddedNats) -> None:
    """One sentence that says what to change."""
    with pytest.raises(Unreachable, match="tls://"):
        await connect(nats_server.url.replace("nats://", "tls://"), timeout=2)

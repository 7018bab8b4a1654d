"""A tls:// address gets TLS or no connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lorogo_transport.errors import Unreachable
from lorogo_transport.nats.addresses import display_address, parse_servers
from lorogo_transport.nats.connection import connect
from lorogo_transport.nats.embedded import EmbeddedNats
from lorogo_transport.nats.tls import TlsFiles, context_of, name_files, split
from tests.certificates import Authority

_INFO = b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"headers":true,"proto":1}\r\n'


async def test_no_password_is_sent_to_a_server_without_tls() -> None:
    """tls:// at a plain server: refused before CONNECT leaves."""
    received = bytearray()
    left = asyncio.Event()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_INFO)
        while data := await reader.read(1000):
            received.extend(data)
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
    assert b"secret" not in received
    assert b"CONNECT" not in received


async def test_a_real_plain_server_is_refused_too(nats_server: EmbeddedNats) -> None:
    """The error is one sentence that names the address to change."""
    with pytest.raises(Unreachable, match="tls://"):
        await connect(nats_server.url.replace("nats://", "tls://"), timeout=2)


@pytest.mark.nats
class TestFiles:
    """An address may name the files that TLS needs."""

    async def test_an_authority_of_one_s_own_is_believed_and_no_other(self, tmp_path: Path) -> None:
        authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
        async with _secured(tmp_path, authority.sign("nats")) as url:
            async with await connect(name_files(url, TlsFiles(ca=str(authority.file)))) as transport:
                assert transport.bus.connected
            with pytest.raises(Unreachable, match="no TLS with"):
                await connect(name_files(url, TlsFiles(ca=str(stranger.file))), timeout=2)

    async def test_a_certificate_of_ours_opens_a_nats_that_asks_for_one(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        cert, key = authority.sign("client")
        asks = ("verify: true", f"ca_file: '{authority.file}'")
        async with _secured(tmp_path, authority.sign("nats"), *asks) as url:
            files = TlsFiles(str(authority.file), str(cert), str(key))
            async with await connect(name_files(url, files)) as transport:
                assert transport.bus.connected
            with pytest.raises(Unreachable):
                await connect(name_files(url, TlsFiles(str(authority.file))), timeout=2)


@asynccontextmanager
async def _secured(folder: Path, pair: tuple[Path, Path], *more: str) -> AsyncIterator[str]:
    lines = [f"cert_file: '{pair[0]}'", f"key_file: '{pair[1]}'", *more]
    text = "tls {\n" + "\n".join(lines) + "\n}\n"
    async with EmbeddedNats(folder / "nats", configuration=text) as nats:
        yield nats.url.replace("nats://", "tls://")


class TestNames:
    def test_every_address_gets_the_files_and_loses_them_again(self) -> None:
        files = TlsFiles("/a b/ca.pem", "/c,d.crt", "/k&e.key")
        named = name_files("one:4222,tls://user:pass@two", files)
        assert split(named) == ("nats://one:4222,tls://user:pass@two", files)
        assert [display_address(one) for one in parse_servers(named)] == ["nats://one:4222", "tls://two:4222"]
        assert name_files("one", TlsFiles()) == "one"
        assert split("one,two") == ("one,two", TlsFiles())

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("tls://one?ca=/a,tls://two?ca=/b", "same TLS files"),
            ("tls://one?ca=/a,tls://two", "same TLS files"),
            ("tls://one?cafile=/a", "ca=FILE"),
            ("tls://one?ca=/a&ca=/b", "ca=FILE"),
            ("tls://one?x", "ca=FILE"),
        ],
    )
    def test_contradictory_addresses_are_refused(self, url: str, why: str) -> None:
        with pytest.raises(Unreachable, match=why):
            split(url)

    def test_wrong_files_are_an_error_of_one_sentence(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        cert, key = (str(one) for one in authority.sign("one"))
        _, open_key = authority.sign("open", mode=0o640)
        garbage = tmp_path / "garbage"
        garbage.write_text("garbage")
        for files, why in (
            (TlsFiles(ca="/none"), "there is no"),
            (TlsFiles(ca=str(garbage)), "no certificate in PEM"),
            (TlsFiles(cert=cert), "a certificate for NATS needs its key"),
            (TlsFiles(cert=cert, key=str(authority.sign("two")[1])), "does not belong"),
            (TlsFiles(cert=cert, key=str(open_key)), "chmod 600"),
            (TlsFiles(cert=str(garbage), key=key), "cannot be used"),
        ):
            with pytest.raises(Unreachable, match=why):
                context_of(files)
        assert context_of(TlsFiles()) is None

"""The gateway on https: its certificate, what is wrong with one, and a new one while it runs."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from lorogo_gateway.server.listener import listening
from lorogo_gateway.server.response_headers import ResponseHeadersMiddleware
from lorogo_gateway.server.tls import Certificate, TlsUnusable
from lorogo_gateway.settings import GatewaySettings
from tests.certificates import Authority
from tests.client.support import DEADLINE


async def hello(request: Request) -> Response:
    return PlainTextResponse(f"hello over {request.url.scheme}")


async def talk(socket_: WebSocket) -> None:
    await socket_.accept()
    await socket_.send_text(await socket_.receive_text())


@asynccontextmanager
async def served(settings: GatewaySettings) -> AsyncIterator[str]:
    routes = [Route("/", hello), WebSocketRoute("/ws", talk)]
    app = Starlette(routes=routes, middleware=[Middleware(ResponseHeadersMiddleware, settings)])
    async with listening(app, settings) as address:
        yield address


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.file)


def settings_of(pair: tuple[Path, Path], **more: Any) -> GatewaySettings:
    return replace(GatewaySettings(port=0, close_seconds=1.0, tls_cert=pair[0], tls_key=pair[1]), **more)


async def test_http_and_websockets_go_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with served(settings_of(authority.sign("web"))) as address:
        assert address.startswith("https://")
        async with httpx.AsyncClient(verify=trusting(authority)) as http:
            answer = await http.get(address)
            assert answer.text == "hello over https"
            assert "strict-transport-security" not in answer.headers
            with pytest.raises(httpx.HTTPError):
                await http.get(address.replace("https", "http"))
        where = address.replace("https", "wss") + "/ws"
        async with connect(where, ssl=trusting(authority)) as socket_:
            await socket_.send("a")
            assert await socket_.recv() == "a"


async def test_hsts_is_sent_only_if_set(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with (
        served(settings_of(authority.sign("web"), hsts_seconds=3600.0)) as address,
        httpx.AsyncClient(verify=trusting(authority)) as http,
    ):
        assert (await http.get(address)).headers["strict-transport-security"] == "max-age=3600"
    async with (
        served(GatewaySettings(port=0, hsts_seconds=3600.0)) as address,
        httpx.AsyncClient() as http,
    ):
        assert "strict-transport-security" not in (await http.get(address)).headers


async def test_old_tls_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    old = trusting(authority)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.deprecated_call():
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    async with (
        served(settings_of(authority.sign("web"))) as address,
        httpx.AsyncClient(verify=old) as http,
    ):
        with pytest.raises(httpx.ConnectError):
            await http.get(address)


async def test_who_does_not_finish_the_handshake_is_cut_off(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with served(settings_of(authority.sign("web"), head_seconds=0.2)) as address:
        port = httpx.URL(address).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01")
        with suppress(ConnectionError):  # which is as good
            async with asyncio.timeout(DEADLINE):
                assert await reader.read() == b""
        writer.close()


async def serial(address: str, authority: Authority) -> int:
    url = httpx.URL(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", url.port, ssl=trusting(authority))
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    del reader
    return x509.load_der_x509_certificate(found).serial_number


async def test_new_connections_get_a_new_certificate_and_open_ones_stay(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("web")
    async with (
        served(settings_of(pair, tls_check_seconds=0.02)) as address,
        httpx.AsyncClient(verify=trusting(authority)) as http,
    ):
        assert (await http.get(address)).status_code == 200
        first = await serial(address, authority)
        authority.sign("web")
        async with asyncio.timeout(DEADLINE):
            while await serial(address, authority) == first:
                assert (await http.get(address)).status_code == 200
        assert (await http.get(address)).status_code == 200


async def test_a_wrong_new_certificate_changes_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("web")
    made = Certificate(cert, key)
    before = made.expires
    good = cert.read_bytes(), key.read_bytes()
    other, _ = authority.sign("other", days=5)
    cert.write_bytes(other.read_bytes())
    with pytest.raises(TlsUnusable, match="does not belong"):
        made.refresh()
    assert not made.refresh()  # the error is raised once
    assert made.expires == before
    cert.unlink()
    with pytest.raises(TlsUnusable, match="there is no"):
        made.refresh()
    cert.write_bytes(good[0])
    assert made.refresh()
    assert not made.refresh()


async def test_a_new_key_that_others_could_read_is_taken_after_the_chmod(tmp_path: Path) -> None:
    """The chmod from the log message is sufficient: the content of the file does not change."""
    authority = Authority(tmp_path)
    cert, key = authority.sign("web")
    made = Certificate(cert, key)
    newer, its_key = authority.sign("newer", days=5)
    cert.write_bytes(newer.read_bytes())
    key.write_bytes(its_key.read_bytes())
    key.chmod(0o644)
    with pytest.raises(TlsUnusable, match="chmod 600"):
        made.refresh()
    key.chmod(0o600)
    assert made.refresh()


class TestWhatIsWrong:
    def test_a_missing_file(self, tmp_path: Path) -> None:
        cert, key = Authority(tmp_path).sign("web")
        with pytest.raises(TlsUnusable, match="there is no"):
            Certificate(tmp_path / "none", key)
        with pytest.raises(TlsUnusable, match="key cannot be read: there is no"):
            Certificate(cert, tmp_path / "none")

    def test_a_key_of_another_certificate(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path)
        cert, _ = authority.sign("one")
        _, key = authority.sign("two")
        with pytest.raises(TlsUnusable, match=r"two\.key' does not belong to .*one\.crt'"):
            Certificate(cert, key)

    def test_a_key_that_others_may_read(self, tmp_path: Path) -> None:
        cert, key = Authority(tmp_path).sign("web", mode=0o644)
        with pytest.raises(TlsUnusable, match="chmod 600"):
            Certificate(cert, key)

    def test_a_key_with_a_passphrase_prompts_no_one(self, tmp_path: Path) -> None:
        cert, key = Authority(tmp_path).sign("web", password=b"secret")
        with pytest.raises(TlsUnusable, match="has a passphrase"):
            Certificate(cert, key)

    @pytest.mark.parametrize("content", ["", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
    def test_what_is_no_certificate(self, tmp_path: Path, content: str) -> None:
        cert, key = Authority(tmp_path).sign("web")
        cert.write_text(content)
        with pytest.raises(TlsUnusable, match="no certificate in PEM"):
            Certificate(cert, key)

    def test_what_is_no_key(self, tmp_path: Path) -> None:
        cert, key = Authority(tmp_path).sign("web")
        key.write_text("garbage")
        with pytest.raises(TlsUnusable, match="cannot be used"):
            Certificate(cert, key)

    def test_one_without_the_other(self, tmp_path: Path) -> None:
        cert, key = Authority(tmp_path).sign("web")
        for half in ({"tls_cert": cert}, {"tls_key": key}):
            with pytest.raises(ValueError, match="go together"):
                GatewaySettings(**half)  # type: ignore[arg-type]  # a path

    def test_an_expired_one_is_served_with_a_warning(self, tmp_path: Path) -> None:
        made = Certificate(*Authority(tmp_path).sign("web", days=-1))
        assert "expired on" in made.warning(datetime.now(UTC))

    def test_a_certificate_that_soon_expires_has_a_warning(self, tmp_path: Path) -> None:
        made = Certificate(*Authority(tmp_path).sign("web", days=20))
        assert made.warning(datetime.now(UTC)) == ""
        assert "expires on" in made.warning(datetime.now(UTC) + timedelta(days=7))


async def test_a_listener_does_not_begin_with_a_wrong_pair(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path).sign("web")
    cert.write_text("")
    with pytest.raises(TlsUnusable):
        async with served(settings_of((cert, key))):
            pytest.fail("it listens")

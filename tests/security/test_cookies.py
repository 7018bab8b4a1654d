"""The cookie of our pages: how it is set, and that pages of others cannot use it."""

import asyncio
from dataclasses import replace

import pytest
from loro import LoroDoc
from websockets.exceptions import InvalidStatus

from lorogo_gateway.auth import COOKIE
from lorogo_gateway.frames import Status
from tests.gateway.support import type_in
from tests.security.closed_gateway import SETTINGS, bearer, closed, cookie
from tests.security.people import mint

PATCH = [{"op": "add", "path": "/evil", "value": {"done": True}}]


def attributes(header: str) -> dict[str, str]:
    """Of a Set-Cookie: `value` and what stands behind it."""
    first, *rest = header.split("; ")
    name, _, value = first.partition("=")
    assert name == COOKIE
    return {"value": value.strip('"')} | {
        one.partition("=")[0].lower(): one.partition("=")[2] for one in rest
    }


@pytest.mark.parametrize("by_body", [False, True], ids=["bearer", "body"])
async def test_signing_in_sets_a_cookie_that_scripts_cannot_read(by_body: bool) -> None:
    """HttpOnly, SameSite=Strict, for the whole gateway, until the token ends; Secure where there is TLS."""
    async with closed() as gate:
        token = mint({"doc": "read"}, seconds=600)
        body, head = ({"token": token}, {}) if by_body else (None, bearer(token))
        for more, secure in (
            ({}, False),
            ({"Origin": gate.address}, False),
            ({"X-Forwarded-Proto": "https"}, True),
            ({"X-Forwarded-Proto": "https, http"}, True),
            ({"X-Forwarded-Proto": "http"}, False),
        ):
            answer = await gate.http.post("/v1/session", headers={**head, **more}, json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["cache-control"] == "no-store"
            assert answer.json()["documents"] == {"doc": "read"}
            assert token not in answer.text
            found = attributes(answer.headers["set-cookie"])
            assert found["value"] == token
            assert "httponly" in found
            assert found["samesite"].lower() == "strict"
            assert found["path"] == "/"
            assert 590 <= int(found["max-age"]) <= 601  # tokens have whole seconds
            assert ("secure" in found) is secure
            gate.http.cookies.clear()


async def test_the_cookie_lets_the_page_in_and_signing_out_takes_it_away() -> None:
    """A browser signs in, reads, signs out, and is anonymous again."""
    async with closed() as gate:
        await gate.write("doc")
        assert (await gate.http.get("/v1/session")).status_code == 401
        signed = await gate.http.post("/v1/session", json={"token": f" {mint({'doc': 'read'})}\n"})
        assert signed.json() | {"expires": ""} == {
            "open": False,
            "subject": "somebody",
            "expires": "",
            "documents": {"doc": "read"},
            "operator": False,
        }
        assert (await gate.http.get("/v1/documents/doc")).json() == {"body": "hello"}
        assert (await gate.http.get("/v1/session")).json()["subject"] == "somebody"
        out = await gate.http.delete("/v1/session")
        assert out.status_code == 204
        assert int(attributes(out.headers["set-cookie"])["max-age"]) == 0
        assert (await gate.http.get("/v1/documents/doc")).status_code == 401


@pytest.mark.parametrize(
    "origin",
    [None, "https://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "", "garbage"],
    ids=str,
)
async def test_a_page_of_others_changes_nothing_with_the_cookie(origin: str | None) -> None:
    """Not even if a browser were to send it: neither without an Origin nor with another one."""
    async with closed() as gate:
        await gate.write("doc")
        headers = {**cookie(mint({"*": "admin"}), gate.address), "Origin": origin}
        if origin is None:
            del headers["Origin"]
        clean = {name: text for name, text in headers.items() if text is not None}
        for method, path, body in (
            ("PATCH", "/v1/documents/doc", PATCH),
            ("PUT", "/v1/documents/new", {"a": "b"}),
            ("DELETE", "/v1/documents/doc", None),
            ("DELETE", "/v1/documents/doc?purge=true", None),
            ("POST", "/v1/documents/doc/reset", None),
            ("POST", "/v1/documents/doc/fork", {"to": "copy"}),
        ):
            answer = await gate.http.request(method, path, headers=clean, json=body)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross-origin"), (method, path)
        assert await gate.read("doc") == {"body": "hello"}
        with pytest.raises(InvalidStatus) as no:
            async with gate.peer("", clean):
                pass
        assert no.value.response.status_code == 403


async def test_a_bearer_needs_no_origin_and_wins_over_the_cookie() -> None:
    """A program sends its token in each request, so that token takes precedence over the browser's cookie."""
    async with closed() as gate:
        await gate.write("doc")
        writes, reads = mint({"doc": "write"}), mint({"doc": "read"})
        both = {**bearer(writes), "Cookie": f"{COOKIE}={reads}"}
        assert (await gate.http.patch("/v1/documents/doc", headers=both, json=PATCH)).status_code == 200
        both = {**bearer(reads), "Cookie": f"{COOKIE}={writes}", "Origin": gate.address}
        assert (await gate.http.patch("/v1/documents/doc", headers=both, json=PATCH)).status_code == 403
        both = {**bearer("garbage"), "Cookie": f"{COOKIE}={writes}", "Origin": gate.address}
        assert (await gate.http.get("/v1/documents/doc", headers=both)).status_code == 401
        async with gate.peer(reads, {"Cookie": f"{COOKIE}={writes}"}) as peer:
            assert (await peer.join("doc")).permission == "read"


@pytest.mark.parametrize(
    "header",
    [
        "Basic dXNlcjpwYXNz",
        "Bearer",
        "Bearer ",
        "bearer",
        "Token {token}",
        "{token}",
        "Bearer {token} {token}",
        "Bearer {token},{token}",
        "Bearer {token}=",
        'Bearer "{token}"',
        "Bearer {token}\x00",
        "Bearer " + "a" * 30_000,
        "Bearer \xff\xfe",
    ],
    ids=lambda text: text[:24].encode("unicode-escape").decode(),
)
async def test_a_header_that_is_not_a_bearer_token_is_refused(header: str) -> None:
    """Another scheme, two tokens, quotes or bytes: 401 and a sentence, which does not repeat the header."""
    async with closed() as gate:
        await gate.write("doc")
        sent = header.replace("{token}", mint({"doc": "read"})).encode("latin-1")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gate.address.rpartition(":")[2]))
        writer.write(b"GET /v1/documents/doc HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n")
        writer.write(b"Authorization: " + sent + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        assert answer.split(b" ")[1] in (b"401", b"400"), answer[:100]
        assert b"hello" not in answer
        if len(sent) > 20:
            assert sent[7:] not in answer


async def test_a_bearer_is_read_however_its_scheme_is_written() -> None:
    """RFC 9110: the name of a scheme has no case."""
    async with closed() as gate:
        await gate.write("doc")
        token = mint({"doc": "read"})
        for scheme in ("Bearer", "bearer", "BEARER"):
            headers = {"Authorization": f"{scheme}  {token}"}
            assert (await gate.http.get("/v1/documents/doc", headers=headers)).status_code == 200


async def test_two_different_tokens_in_one_place_are_refused() -> None:
    """A cookie that a neighbouring host sets beside ours must not decide the identity."""
    async with closed() as gate:
        await gate.write("doc")
        ours, theirs = mint({"doc": "read"}), mint({"doc": "admin"})
        pairs = [
            [("Cookie", f"{COOKIE}={ours}; {COOKIE}={theirs}")],
            [("Cookie", f"{COOKIE}={ours}"), ("Cookie", f"{COOKIE}={theirs}")],
            [("Authorization", f"Bearer {ours}"), ("Authorization", f"Bearer {theirs}")],
        ]
        for headers in pairs:
            answer = await gate.http.get("/v1/documents/doc", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "token-ambiguous")
        same = [("Cookie", f"{COOKIE}={ours}; {COOKIE}={ours}")]
        assert (await gate.http.get("/v1/documents/doc", headers=same)).status_code == 200
        almost = {"Cookie": f"x{COOKIE}={ours}; {COOKIE.upper()}={ours}; a={COOKIE}={ours}"}
        assert (await gate.http.get("/v1/documents/doc", headers=almost)).status_code == 401


@pytest.mark.parametrize("name", ["token", "access_token", "auth", "authorization", COOKIE, "jwt"])
async def test_a_token_in_the_address_is_not_taken(name: str) -> None:
    """Neither in the query nor in the path: addresses are written down everywhere."""
    async with closed() as gate:
        await gate.write("doc")
        token = mint({"*": "admin"})
        for path in (
            f"/v1/documents/doc?{name}={token}",
            f"/v1/documents/doc/{token}",
            f"/metrics?{name}={token}",
        ):
            answer = await gate.http.get(path)
            assert answer.status_code in (401, 404), path
        address = gate.address.replace("://", f"://user:{token}@")
        assert (await gate.http.get(f"{address}/v1/documents/doc")).status_code == 401
        async with gate.peer() as peer:
            no = await peer.join_error(f"doc?{name}"[:100])
            assert no.app_code == "invalid_document_id"


@pytest.mark.parametrize(
    "text", ["a.b.c\r\nSet-Cookie: x=1", "a.b.c\nX: 1", "a.b.c; Path=/evil", "a.b.c\x00"]
)
async def test_what_would_end_a_header_is_no_token(text: str) -> None:
    """Signing in with it is 401, and nothing of it comes back."""
    async with closed() as gate:
        answer = await gate.http.post("/v1/session", json={"token": text})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "x" not in {name.lower() for name in answer.headers}
        assert "evil" not in answer.text


async def test_signing_in_is_for_our_own_pages() -> None:
    """Another page must not sign its visitor in as another user, or out."""
    async with closed() as gate:
        evil = {"Origin": "https://evil.example"}
        answer = await gate.http.post("/v1/session", headers=evil, json={"token": mint({"doc": "read"})})
        assert (answer.status_code, answer.json()["code"]) == (403, "cross-origin")
        assert "set-cookie" not in answer.headers
        assert (await gate.http.delete("/v1/session", headers=evil)).status_code == 403


async def test_a_read_only_gateway_lets_people_sign_in() -> None:
    """It changes no document."""
    async with closed(replace(SETTINGS, read_only=True)) as gate:
        answer = await gate.http.post("/v1/session", json={"token": mint({"doc": "admin"})})
        assert answer.status_code == 200
        assert (await gate.http.delete("/v1/session")).status_code == 204


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"token": ""}', b'{"token": 5}', b"[]", b"{", b'{"token": "a", "more": 1}']
)
async def test_signing_in_with_an_invalid_body_is_refused(body: bytes) -> None:
    """400 or 401, and a sentence."""
    async with closed(serving=False) as gate:
        headers = {"Content-Type": "application/json"}
        answer = await gate.http.post("/v1/session", headers=headers, content=body)
        assert answer.status_code in (400, 401, 422)
        assert answer.json()["detail"]
        assert "set-cookie" not in answer.headers


async def test_a_websocket_with_the_cookie_and_our_origin_is_let_in() -> None:
    """As our page opens it."""
    async with closed() as gate:
        await gate.write("doc")
        async with gate.peer("", cookie(mint({"doc": "write"}), gate.address)) as peer:
            assert (await peer.join("doc")).permission == "write"
            assert await peer.save(type_in(LoroDoc(), "x"), room="doc") is Status.OK
            assert gate.gateway.guard.followed == 1

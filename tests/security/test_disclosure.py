"""Disclosure by role: lists, feeds, figures, descriptions, logs. No output contains a token."""

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from lorogo_client.feed import FeedPosition
from lorogo_gateway.auth import PresentedToken, Principal, TokenGuard
from lorogo_gateway.auth.audit_log import AuditLog
from lorogo_protocol.access import tokens
from tests.gateway.support import DEADLINE
from tests.revoking import list_of
from tests.security.closed_gateway import SETTINGS, Closed, bearer, closed
from tests.security.people import OURS, mint

CLIENTS = ("httpx", "httpcore", "websockets.client")  # of the test: they show at debug level what they send


async def listed(gate: Closed, token: str, **query: str | int) -> list[str]:
    """The ids on all pages."""
    found: list[str] = []
    after: dict[str, Any] = {}
    while True:
        answer = await gate.http.get("/v1/documents", params={**query, **after}, headers=bearer(token))
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [one["document"] for one in page["documents"]]
        if page["next"] is None:
            return found
        assert len(page["documents"]) == query.get("limit", len(page["documents"]))
        after = {"after": page["next"]}


async def test_a_list_has_what_the_token_may_read() -> None:
    """By name and by pattern; pages are full, and begin where they should; no other id is in any of them."""
    async with closed() as gate:
        for name in ("a", "b-1", "b-2", "b-3", "c", "d-1", "e"):
            await gate.write(name)
        assert await listed(gate, mint({"*": "read"})) == ["a", "b-1", "b-2", "b-3", "c", "d-1", "e"]
        some = mint({"b-*": "read", "c": "write", "gone": "admin", "*-1": "read"})
        assert await listed(gate, some) == ["b-1", "b-2", "b-3", "c", "d-1"]
        assert await listed(gate, some, limit=1) == ["b-1", "b-2", "b-3", "c", "d-1"]
        assert await listed(gate, some, limit=2, prefix="b") == ["b-1", "b-2", "b-3"]
        assert await listed(gate, some, prefix="a") == []
        assert await listed(gate, mint({"gone": "read"})) == []


async def events(
    gate: Closed, token: str, count: int, **query: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The first so many events of a feed, and all ids that came."""
    found: list[dict[str, Any]] = []
    ids: list[str] = []
    async with (
        asyncio.timeout(DEADLINE),
        gate.http.stream("GET", "/v1/feed", params=query, headers=bearer(token)) as feed,
    ):
        assert feed.status_code == 200
        async for line in feed.aiter_lines():
            kind, _, text = line.partition(": ")
            if kind == "id":
                ids.append(text)
            if kind == "data":
                found.append(json.loads(text))
            if len(found) == count:
                break
    return found, ids


@pytest.mark.parametrize("documents", [{"mine": "read"}, {"min*": "read"}, {"mine": "read", "x-*": "read"}])
async def test_a_feed_has_what_the_token_may_read(documents: dict[str, str]) -> None:
    """Neither events nor their positions name another document."""
    async with closed() as gate:
        for name in ("other", "mine", "secret"):
            await gate.write(name)
        token = mint(documents)
        found, ids = await events(gate, token, 1, since="0")
        assert [one["document"] for one in found] == ["mine"]
        assert ids
        for text in ids:
            if text.startswith("lf1-"):
                state = FeedPosition.parse(text).state()
                assert "secret" not in repr(state.memory.encode())
                assert "other" not in repr(state.memory.encode())
        await gate.write("new-other")
        await gate.patch("mine", {"op": "add", "path": "/m", "value": {"a": 1}})
        more, _ = await events(gate, token, 1, since=ids[-1])
        assert [one["document"] for one in more] == ["mine"]


async def test_a_position_of_others_opens_nothing() -> None:
    """The id of an operator's event brings a reader only what the reader may read."""
    async with closed() as gate:
        await gate.write("secret")
        _, ids = await events(gate, mint({"*": "admin"}), 1, since="0")
        await gate.patch("secret", {"op": "add", "path": "/m", "value": {"a": 1}})
        await gate.write("mine")
        found, _ = await events(gate, mint({"mine": "read"}), 1, since=ids[0])
        assert [one["document"] for one in found] == ["mine"]


async def test_a_feed_of_documents_that_are_not_yours_is_refused() -> None:
    """All that are named must be readable."""
    async with closed() as gate:
        await gate.write("mine")
        headers = bearer(mint({"mine": "read"}))
        answer = await gate.http.get("/v1/feed?document=mine&document=secret", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "permission-denied")


async def test_readyz_tells_strangers_no_details() -> None:
    """Every client sees whether the gateway is ready, with codes; only operators see the details."""
    async with closed(serving=False) as gate:
        for token in ("", "garbage", mint({"doc": "admin"})):
            answer = await gate.http.get("/readyz", headers=bearer(token))
            assert answer.status_code == 503
            assert answer.json() == {"ready": False, "reasons": [{"code": "no-server"}]}
        body = await gate.http.get("/readyz", headers=bearer(mint({"*": "admin"})))
        assert "lorogo serve" in body.json()["reasons"][0]["detail"]


async def test_what_one_may_read_is_not_for_shared_caches() -> None:
    """`private`, or not to be stored at all."""
    async with closed() as gate:
        await gate.write("doc")
        for path in (
            "/v1/documents",
            "/v1/documents/doc",
            "/v1/documents/doc/history",
            "/v1/session",
            "/v1/overview",
        ):
            answer = await gate.http.get(path, headers=bearer(mint({"*": "admin"})))
            assert answer.status_code == 200
            assert answer.headers["cache-control"].startswith(("private", "no-store")), path


async def test_metrics_may_be_opened() -> None:
    """`metrics_open`: for a Prometheus that cannot send a token."""
    async with closed(replace(SETTINGS, metrics_open=True)) as gate:
        assert (await gate.http.get("/metrics")).status_code == 200


async def test_the_description_says_what_each_operation_needs() -> None:
    """The description has securitySchemes, and `security` for each operation, also for those that need
    nothing.
    """
    async with closed(serving=False) as gate:
        body = (await gate.http.get("/v1/openapi.json")).json()
    schemes = body["components"]["securitySchemes"]
    assert schemes["bearer"]["scheme"] == "bearer"
    assert (schemes["cookie"]["in"], schemes["cookie"]["name"]) == ("cookie", "lorogo_token")
    both: list[dict[str, list[str]]] = [{"bearer": []}, {"cookie": []}]
    for path, methods in body["paths"].items():
        for method, one in methods.items():
            free = path == "/v1/openapi.json" or (path == "/v1/session" and method != "get")
            assert one["security"] == ([] if free else both), (path, method)
            if not free:
                assert {"401", "403"} <= set(one["responses"])
                assert one["description"].startswith("Needs ")
    fork = body["paths"]["/v1/documents/{id}/fork"]["post"]
    assert fork["description"] == "Needs `read` on the document, `write` on `to`."
    delete = body["paths"]["/v1/documents/{id}"]["delete"]
    assert delete["description"] == "Needs `write` on the document, `admin` with `purge`."


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """Everything that is logged, with its facts."""
    kept: list[dict[str, Any]] = []

    def keep(_logger: object, _name: str, event: Any) -> Any:
        kept.append(dict(event))
        raise structlog.DropEvent

    configured, before = structlog.is_configured(), structlog.get_config()
    structlog.configure(processors=[keep], wrapper_class=structlog.make_filtering_bound_logger(0))
    yield kept
    structlog.reset_defaults()
    if configured:
        structlog.configure(**before)


async def test_no_token_is_disclosed(
    lines: list[dict[str, Any]], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """In no log line, answer, figure, description, repr or on any stream, whether it is good or not."""
    caplog.set_level(logging.DEBUG)
    good = mint({"doc": "write"}, token_id="good")
    operator, bad = mint({"*": "admin"}), mint({"doc": "write"}, seconds=-3600.0)
    secrets = [text.rpartition(".")[2] for text in (good, operator, bad)]
    answers = []
    async with closed() as gate:
        await gate.write("doc")
        for token in (good, operator, bad, good + "x"):
            for path in ("/v1/documents/doc", "/v1/overview", "/v1/session", "/metrics", "/v1/openapi.json"):
                answer = await gate.http.get(path, headers=bearer(token))
                answers.append(f"{answer.text} {answer.headers}")
            answer = await gate.http.post("/v1/documents/doc/reset", headers=bearer(token))
            answers.append(f"{answer.text} {answer.headers}")
            async with gate.peer() as peer:
                await peer.join_error("other", auth=token) if token != operator else None
        async with gate.peer(good) as peer:
            await peer.join("doc")
            await list_of(gate.authority).revoke_token("good")
            answers.append(f"{await peer.closed()} {peer.waiting}")
    users = [tokens.user_of(text) for text in (good, operator, bad)]
    out, err = capfd.readouterr()
    ours = [one for one in caplog.records if not one.name.startswith(CLIENTS)]
    everywhere = [*map(repr, lines), *answers, *(one.getMessage() for one in ours), out, err]
    for text in everywhere:
        for one in (*secrets, *users):
            assert one not in text
    assert lines


def test_neither_a_principal_nor_what_it_came_from_shows_its_token() -> None:
    """In a repr or a format, as in a traceback."""
    text = mint({"doc": "write"})
    token = tokens.Keys([OURS]).verify(text, now=tokens.peek(text).expires - 10)
    for thing in (Principal(token.grants, token, text), PresentedToken(text, "bearer")):
        assert text not in f"{thing!r} {thing}"
        assert tokens.user_of(text) not in f"{thing!r}"
    assert TokenGuard().open


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wall_ns(self) -> int:
        return int(self.seconds * 1e9)


def audited(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str, str]]:
    return [
        (line["event"], line["document"], line["subject"], line["outcome"], line["address"])
        for line in lines
        if "outcome" in line and "address" in line  # the owner writes lines of its own
    ]


async def test_what_operators_do_is_written_down(lines: list[dict[str, Any]]) -> None:
    """The log has each reset and purge, done and denied, with subject and address, and one dashboard line an
    hour.
    """
    async with closed() as gate:
        await gate.write("doc")
        await gate.write("old")
        admin = bearer(mint({"doc": "admin", "old": "admin"}, subject="anna", token_id="annas"))
        writer = bearer(mint({"doc": "write"}, subject="otto"))
        operator = bearer(mint({"*": "admin"}, subject="olga"))
        for headers in (admin, writer, {}):
            await gate.http.post("/v1/documents/doc/reset", headers=headers)
        await gate.http.delete("/v1/documents/old?purge=true", headers=admin)
        await gate.http.delete("/v1/documents/doc?purge=true", headers=writer)
        await gate.http.delete("/v1/documents/doc", headers=writer)
        for path in ("/v1/servers", "/v1/overview", "/v1/overview", "/v1/rejected"):
            await gate.http.get(path, headers=operator)
        await gate.http.get("/v1/servers", headers=admin)
    here = "127.0.0.1"
    assert audited(lines) == [
        ("reset", "doc", "anna", "done", here),
        ("reset", "doc", "otto", "denied", here),
        ("reset", "doc", "", "denied", here),
        ("erase", "old", "anna", "done", here),
        ("erase", "doc", "otto", "denied", here),
        ("dashboard", "", "olga", "done", here),
        ("dashboard", "", "anna", "denied", here),
    ]
    assert next(line for line in lines if line.get("subject") == "anna")["token_id"] == "annas"


def test_who_looks_is_written_down_once_an_hour(lines: list[dict[str, Any]]) -> None:
    """For each token and address; and what is remembered for that is bounded."""
    clock = Clock()
    audit = AuditLog(clock)
    text = mint({"*": "admin"})
    token = tokens.Keys([OURS]).verify(text, now=tokens.peek(text).expires - 10)
    who = Principal(token.grants, token, text)
    for seconds, address, news in ((0, "a", 1), (10, "a", 0), (10, "b", 1), (3599, "a", 0), (3600, "a", 1)):
        clock.seconds = seconds
        before = len(lines)
        audit.record("dashboard", who, address, "done")
        assert len(lines) - before == news, (seconds, address)
    for number in range(10_000):
        audit.record("reset", None, f"10.0.0.{number}", "denied")
    assert len(audit._last) == 4_096

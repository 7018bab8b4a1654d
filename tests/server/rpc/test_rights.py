"""Rights on a closed owner: every verb, with every kind of token (docs/decisions/0016)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog

from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import VERBS, Access
from lorogo_protocol.ids import is_user_inbox
from lorogo_protocol.messages import calls, chunks, subjects
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.messages.replies import Ack
from lorogo_protocol.status import Down, Failed, Up
from lorogo_server import Server
from lorogo_testing.memory_nats import MemoryNats
from lorogo_transport.ports import Message
from tests.revoking import list_of
from tests.server.closed_world import QUIET, ClosedWorld, closed_world, mint, standing
from tests.server.support import Probe, Writer, until

DENIED = Reason.PERMISSION_DENIED
_ARGUMENTS: dict[str, dict[str, object]] = {
    "patch": {"operations": []},
    "revert": {"at": b""},
    "import": {"payload": b"x"},
    "fork": {"to": "copy"},
}


@pytest.fixture
async def closed() -> AsyncIterator[ClosedWorld]:
    async with closed_world() as made:
        yield made


@contextlib.contextmanager
def audited() -> Any:
    """The lines of the audit log, as they come."""
    with structlog.testing.capture_logs() as lines:
        yield lines


def audit_lines(lines: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [
        (line["event"], line["document"], line["subject"], line["outcome"])
        for line in lines
        if "outcome" in line
    ]


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_every_verb_with_every_kind_of_token(closed: ClosedWorld, verb: str) -> None:
    """Only a good token with the access that the verb needs is let in."""
    await closed.probe.start("doc")
    revoked = mint({"*": "admin"}, token_id="gone")
    await list_of(closed.authority).revoke_token("gone")
    await until(lambda: is_refused(closed, revoked))
    everybody = {
        "": Access.NONE,
        "no token at all": Access.NONE,
        mint({"doc": "read", "copy": "write"}): Access.READ,
        mint({"doc": "write", "copy": "write"}): Access.WRITE,
        mint({"d*": "admin", "copy": "write"}): Access.ADMIN,
        mint({"other": "admin", "copy": "admin"}): Access.NONE,
        mint({"doc": "admin", "copy": "admin"}, seconds=-60): Access.NONE,
        revoked: Access.NONE,
    }
    for token, access in everybody.items():
        answer = await closed.asked(verb, "doc", token, _ARGUMENTS.get(verb))
        assert (answer is not DENIED) == (access >= VERBS[verb]), (verb, access, answer)
    counts = closed.server.stats()["calls_refused"]
    assert isinstance(counts, dict)
    assert counts[DENIED.value] == sum(access < VERBS[verb] for access in everybody.values())


async def is_refused(closed: ClosedWorld, token: str) -> bool:
    try:
        closed.authority.verify(token)
    except tokens.TokenRefused:
        return True
    return False


async def test_what_only_the_body_tells(closed: ClosedWorld) -> None:
    """A fork needs to write its target, and erasing needs to be admin; whatever the value of `purge` is."""
    await closed.probe.start("doc")
    table: tuple[tuple[dict[str, str], str, dict[str, object], bool], ...] = (
        ({"doc": "read"}, "fork", {"to": "copy"}, True),
        ({"doc": "admin", "copy": "read"}, "fork", {"to": "copy"}, True),
        ({"doc": "read", "c*": "write"}, "fork", {"to": "copy"}, False),
        ({"doc": "write"}, "delete", {"purge": True}, True),
        ({"doc": "write"}, "delete", {"purge": "yes"}, True),
        ({"doc": "write"}, "delete", {"purge": False}, False),
        ({"doc": "admin"}, "delete", {"purge": True}, False),
    )
    for documents, verb, body, denied in table:
        answer = await closed.asked(verb, "doc", mint(documents), body)
        assert (answer is DENIED) == denied, (documents, verb, body, answer)


async def test_unknown_verbs_are_refused(closed: ClosedWorld) -> None:
    """Only readers learn that a verb is unknown."""
    await closed.probe.start("doc")
    assert await closed.asked("conquer", "doc") is DENIED
    assert await closed.asked("conquer", "doc", mint({"doc": "read"})) is Reason.UNKNOWN_VERB


async def test_services_read_without_a_token(closed: ClosedWorld) -> None:
    """To their own inboxes, to which no other user may subscribe; only calls that read the whole document."""
    await closed.probe.start("doc")
    for inbox in (subjects.SERVER_INBOX, subjects.GATEWAY_INBOX, subjects.OPERATOR_INBOX):
        service = closed.world.connect("service", standing(inbox))
        for verb in sorted(VERBS):
            answer = await closed.asked(verb, "doc", body=_ARGUMENTS.get(verb), through=service)
            assert (answer is not DENIED) == (verb in ("sync", "version", "status")), (verb, answer)
    for inbox in ("_INBOX_srvx", "_INBOX_Srv", "_INBOX_gatewayx", "_INBOX_probe1"):
        stranger = closed.world.connect("stranger", standing(inbox))
        assert await closed.asked("sync", "doc", through=stranger) is DENIED


async def test_a_server_that_cannot_check_yet_says_busy() -> None:
    """While the revocations are unknown every token is refused, with a retriable reason."""
    async with closed_world() as closed:
        await closed.probe.start("doc")
        closed.authority._revocations._known = False  # type: ignore[union-attr]  # as before the first look
        assert await closed.asked("get", "doc", mint({"doc": "read"})) is Reason.BUSY


async def test_an_open_server_checks_no_token() -> None:
    """Without keys a token changes nothing, not even a bad one."""
    world = MemoryNats()
    async with (
        world.connect("server") as transport,
        Server(transport, QUIET) as server,
        Probe(world.connect("probe")) as probe,
    ):
        await probe.start("doc")
        open_world = ClosedWorld(world, server, None, probe)  # type: ignore[arg-type]  # none there
        for token in ("", "nonsense", mint({"doc": "read"}, seconds=-60)):
            assert not isinstance(await open_world.asked("compact", "doc", token), Reason)


async def test_chunks_of_different_tokens_do_not_mix(closed: ClosedWorld) -> None:
    """A call is what one token sent; a chunk that another sent under the same id is none of it."""
    await closed.probe.start("doc")
    bus = closed.probe.bus
    writer, other = mint({"doc": "write"}), mint({"doc": "write"}, token_id="other")
    body = calls.encode({"operations": [{"op": "add", "path": "/title", "value": "mine"}]})
    first, final = chunks.split(body, "call", chunk_bytes_max=len(body) // 2 + 1)
    answers: asyncio.Queue[Message] = asyncio.Queue()
    inbox = bus.new_inbox()
    await bus.subscribe(inbox, answers.put_nowait)
    subject = subjects.call("patch", "doc")
    await bus.publish(subject, first.data, headers={**first.headers(), h.TOKEN: other})
    await bus.publish(subject, final.data, headers={**final.headers(), h.TOKEN: writer}, reply=inbox)
    # edits are made one after the other: had it been put together, this one would be the second
    own = await closed.asked(
        "patch", "doc", writer, {"operations": [{"op": "add", "path": "/own", "value": "x"}]}
    )
    assert isinstance(own, dict)
    assert own["sequence"] == 1
    assert answers.empty()
    await bus.publish(subject, first.data, headers={**first.headers(), h.TOKEN: writer}, reply=inbox)
    async with asyncio.timeout(10):
        while h.LOG_ID not in (answer := await answers.get()).headers:
            pass  # the first chunk's "go on"
    assert calls.decode(answer.data)["sequence"] == 2


async def test_nothing_is_kept_of_those_who_may_not(closed: ClosedWorld) -> None:
    """A long body is refused at its first chunk."""
    await closed.probe.start("doc")
    bus, reader = closed.probe.bus, mint({"doc": "read"})
    for token in ("", "nonsense", reader):
        chunk = next(iter(chunks.split(bytes(200_000), "call", chunk_bytes_max=100_000)))
        await bus.publish(
            subjects.call("import", "doc"), chunk.data, headers={**chunk.headers(), h.TOKEN: token}
        )
    await bus.barrier()
    await closed.server.context.transport.bus.barrier()
    assert closed.server.hosts["doc"].unfinished_bytes == 0
    chunk = next(iter(chunks.split(bytes(200_000), "call", chunk_bytes_max=100_000)))
    headers = {**chunk.headers(), h.TOKEN: mint({"doc": "write"})}
    await bus.publish(subjects.call("import", "doc"), chunk.data, headers=headers)
    await bus.barrier()
    await closed.server.context.transport.bus.barrier()
    assert closed.server.hosts["doc"].unfinished_bytes == 100_000


_FORGED = [
    "$JS.API.STREAM.PURGE.loro-wal",
    "$KV.loro-document-status.doc",
    "loro.wal.other",
    "loro.committed.doc",
    "_INBOX.x",
    "_INBOX_",
    "_INBOX_ann",
    "_INBOX_a-b.c",
    "_INBOX_ann.*",
    "_INBOX_ann.>",
    "_TAKEN.x",
    "replies",
    "_INBOX_ann." + "x" * 10_000,
]


async def test_no_answer_goes_where_anybody_might_listen(closed: ClosedWorld) -> None:
    """Neither a reply subject nor LORO_RESPONSE_INBOX makes a closed server publish anywhere but to users."""
    await closed.probe.start("doc")
    received: list[str] = []
    observer = closed.world.connect("observer")
    await observer.bus.subscribe(">", lambda message: received.append(message.subject))
    await observer.bus.barrier()
    bus, token = closed.probe.bus, mint({"doc": "admin"})
    asked = [subjects.ping("doc"), subjects.call("get", "doc"), subjects.init("doc"), subjects.reset("doc")]
    writer = Writer()
    for reply in _FORGED:
        for subject in asked:
            await bus.publish(subject, headers={h.TOKEN: token}, reply=reply)
        (chunk,) = chunks.split(writer.type("a"), f"u{len(received)}", chunk_bytes_max=100_000, inbox=reply)
        await closed.probe.wal.append(subjects.wal("doc"), chunk.data, headers=chunk.headers())
    last = await closed.probe.accept("doc", writer.everything())
    assert isinstance(last, Ack)
    ours = set(asked) | {subjects.wal("doc"), subjects.committed("doc"), subjects.accepted("doc")}
    others = {
        subject
        for subject in received
        if subject not in ours
        and not subject.startswith(("$KV.", "loro.status.", "loro.rejected.", "$O.", "loro.awareness."))
    }
    assert others
    assert all(is_user_inbox(subject) for subject in others), others
    assert closed.server.stats()["unanswerable"] >= len(_FORGED) * len(asked)  # type: ignore[operator]  # a number


async def test_an_update_whose_inbox_is_not_a_user_s_is_saved_all_the_same(closed: ClosedWorld) -> None:
    """Keys of a server do not change the accepted updates; only the answer is missing."""
    await closed.probe.start("doc")
    writer = Writer()
    (chunk,) = chunks.split(writer.type("kept"), "u1", chunk_bytes_max=100_000, inbox="_INBOX.x")
    received = await closed.probe.hear("_INBOX.>")
    await closed.probe.wal.append(subjects.wal("doc"), chunk.data, headers=chunk.headers())
    await closed.probe.accept("doc", writer.type("!"))
    assert received.empty()
    answer = await closed.asked("get", "doc", mint({"doc": "read"}))
    assert isinstance(answer, dict)
    assert answer["value"] == {"body": "kept!"}


# --- reset, and what is written down about those who do such things ------------------------------------


async def reset(closed: ClosedWorld, token: str = "") -> Reason | object:
    """As a client does it."""
    bus = closed.probe.bus
    answer = await bus.request(subjects.reset("bad"), headers={h.TOKEN: token} if token else None, timeout=5)
    if h.REASON in answer.headers:
        return Reason(answer.headers[h.REASON])
    return calls.decode(answer.data)["reset"]


async def test_reset_takes_a_document_out_of_error(closed: ClosedWorld) -> None:
    """For admins only; once; and it is written down who did or tried."""
    statuses = closed.probe.statuses
    await statuses.write("bad", Failed("trace", 1), expected_revision=0)
    with audited() as lines:
        for token in ("", "junk", mint({"bad": "write"}), mint({"other": "admin"})):
            assert await reset(closed, token) is DENIED
        assert isinstance((await closed.probe.status("bad")).status, Failed)
        assert await reset(closed, mint({"bad": "admin"})) is True
        assert isinstance((await closed.probe.status("bad")).status, Down)
        assert await reset(closed, mint({"b*": "admin"})) is False
    assert audit_lines(lines) == [
        ("reset", "bad", "", "denied"),
        ("reset", "bad", "", "denied"),
        ("reset", "bad", "ann", "denied"),
        ("reset", "bad", "ann", "denied"),
        ("reset", "bad", "ann", "done"),
        ("reset", "bad", "ann", "done"),
    ]


async def test_a_served_document_is_not_reset(closed: ClosedWorld) -> None:
    """It is not in ERROR: nothing happens to it."""
    before = await closed.probe.start("bad")
    assert await reset(closed, mint({"bad": "admin"})) is False
    after = await closed.probe.status("bad")
    assert isinstance(after.status, Up)
    assert after.token == before.token


async def test_compacting_and_erasing_are_written_down(closed: ClosedWorld) -> None:
    """Done, denied or failed, with whose token it was; plain deletion is not."""
    await closed.probe.start("doc")
    admin, writer = mint({"doc": "admin"}, token_id="t-admin"), mint({"doc": "write"})
    with audited() as lines:
        await closed.asked("compact", "doc", writer)
        await closed.asked("compact", "doc", admin)
        await closed.asked("delete", "doc", writer, {"purge": True})
        await closed.asked("delete", "doc", writer)
        await closed.asked("compact", "doc", admin)
        await closed.asked("delete", "doc", admin, {"purge": True})
    assert audit_lines(lines) == [
        ("compact", "doc", "ann", "denied"),
        ("compact", "doc", "ann", "done"),
        ("erase", "doc", "ann", "denied"),
        ("compact", "doc", "ann", "failed"),
        ("erase", "doc", "ann", "done"),
    ]
    assert {line.get("token_id") for line in lines if line.get("outcome") == "done"} == {"t-admin"}


async def test_no_log_line_shows_a_token(closed: ClosedWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is refused, malformed or failed: neither the token nor its signature is written anywhere."""
    caplog.set_level(logging.DEBUG)
    await closed.probe.start("doc")
    texts = [
        mint({"doc": "admin"}),
        mint({"doc": "read"}),
        mint({"doc": "admin"}, seconds=-60),
        mint({"doc": "admin"})[:-3] + "abc",
        "nonsense-that-is-secret",
        "s" * 100_000,
    ]
    for text in texts:
        for verb in ("get", "patch", "compact", "delete", "fork", "conquer"):
            await closed.asked(verb, "doc", text, {"to": 7, "purge": "x", "at": "x"})
        await reset(closed, text)
    for text in texts:
        assert text not in caplog.text
        assert text.rpartition(".")[2] not in caplog.text

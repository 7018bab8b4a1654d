"""Answers go to inboxes only, never where the one who asks has no right to publish."""

import pytest

from lorogo_protocol.messages.headers import LOG_ID
from lorogo_transport.rpc.reply_rule import ReplyRule
from tests.transport.support import AnyTransport, Collector, Connect


@pytest.mark.parametrize(
    ("reply", "may"),
    [
        ("_INBOX.abc.1", True),
        ("my.own.inbox", True),
        ("", False),
        ("$JS.API.STREAM.PURGE.loro-wal", False),
        ("$KV.loro-document-status.doc", False),
        ("$O.loro-document-snapshots.M.ZG9j", False),
        ("loro.wal.doc", False),
        ("loro.ping.doc", False),
        ("_INBOX.*", False),
        ("_INBOX.>", False),
        ("_INBOX.a b", False),
        ("_INBOX..a", False),
    ],
)
def test_where_an_answer_may_go(reply: str, may: bool) -> None:
    """To one plain subject that is neither NATS's own nor ours."""
    assert ReplyRule().to(reply) == (reply if may else "")


async def test_a_handler_never_sees_a_reply_that_it_must_not_use(
    dial: Connect, transport: AnyTransport, unique: str
) -> None:
    """The message comes, its reply does not; with headers or without."""
    received, other = Collector(), await dial()
    await transport.bus.subscribe(unique, received)
    await transport.bus.barrier()
    inbox = other.bus.new_inbox()
    for reply in ("$JS.API.INFO", f"loro.wal.{unique}", inbox):
        await other.bus.publish(unique, b"plain", reply=reply)
        await other.bus.publish(unique, b"headed", headers={LOG_ID: "a"}, reply=reply)
    messages = await received.wait(6)
    assert [message.reply for message in messages] == ["", "", "", "", inbox, inbox]


@pytest.mark.parametrize(
    ("reply", "may"),
    [
        ("_INBOX_0123abcd.x.1", True),
        ("_INBOX_srv.x", True),
        ("_INBOX.abc.1", False),
        ("_INBOX_.x", False),
        ("_INBOX_a", False),
        ("_INBOX_a.", False),
        ("_INBOX_a-b.x", False),
        ("_INBOX_a.*", False),
        ("_INBOX_a.b\r\nPUB c 0", False),
        ("_INBOX_a." + "b" * 10_000, False),
        ("$JS.API.STREAM.PURGE.loro-wal", False),
        ("loro.wal.x", False),
        ("_TAKEN.x", False),
        ("replies", False),
    ],
)
def test_a_closed_server_answers_to_users_only(reply: str, may: bool) -> None:
    """A closed server answers only to an inbox that names its user, because any client could listen to
    others.
    """
    assert ReplyRule(users_only=True).to(reply) == (reply if may else "")


def test_what_could_not_be_answered_is_counted() -> None:
    """No reply at all is none that was refused."""
    answering = ReplyRule(users_only=True)
    assert [answering.to(reply) for reply in ("", "_INBOX.x", "_INBOX_a.x", "$JS.x")] == [
        "",
        "",
        "_INBOX_a.x",
        "",
    ]
    assert answering.refused == 2

"""The rights of every person on a closed NATS, each tried for real with a plain socket.

`python -m tests.security.nats_table` prints them as Markdown. Outsiders are those whom NATS refuses.
"""

import asyncio
import base64
import json
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lorogo_protocol.access import tokens
from lorogo_protocol.access.grants import VERBS
from lorogo_transport.ports import Message
from tests.revoking import list_of
from tests.security.closed import OTHER_KEY, Closed, closed_nats, mint
from tests.security.raw import Raw

_VIOLATION = re.compile(r'Permissions Violation for (Publish|Subscription) to "([^"]+)"')
OWN, OTHERS = "_INBOX_{own}.x", "_INBOX_{other}.x"  # filled in for each person

#: every kind of subject that there is on d1, and what is NATS's own
TRIED: Sequence[str] = (
    "loro.wal.d1",
    "loro.committed.d1",
    "loro.accepted.d1",
    "loro.status.d1",
    "loro.ping.d1",
    "loro.init.d1",
    *(f"loro.doc.{verb}.d1" for verb in VERBS),
    "loro.doc.unheard.d1",
    "loro.awareness.d1",
    "loro.reset.d1",
    "loro.rejected.d1",
    "loro.erased.d1",
    "loro.server.feed.s1",
    "loro.server.started",
    "loro.server.vouched.d1",
    "loro.revoked.tok_x",
    "$JS.API.INFO",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.INFO.loro-wal",
    "$JS.API.STREAM.PURGE.loro-wal",
    "$JS.API.STREAM.DELETE.loro-wal",
    "$JS.API.STREAM.UPDATE.loro-wal",
    "$JS.API.STREAM.MSG.GET.loro-wal",
    "$JS.API.STREAM.MSG.DELETE.loro-wal",
    "$JS.API.DIRECT.GET.loro-wal",
    "$JS.API.DIRECT.GET.loro-wal.loro.wal.d1",
    "$JS.API.CONSUMER.CREATE.loro-wal",
    "$JS.API.CONSUMER.CREATE.loro-wal.c.loro.wal.d1",
    "$JS.ACK.loro-wal.c.1.1.1.1.0",
    "$JS.FC.loro-wal.c.x",
    "$KV.loro-document-status.d1",
    "$KV.loro-presence.d1",
    "$KV.loro-revoked.tok_x",
    "$O.loro-document-snapshots.M.ZDE=",
    "$O.loro-document-snapshots.C.x",
    "$SRV.PING",
    "$SRV.STATS.lorogo",
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.USER.INFO",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS._INBOX.x.y",
    OWN,
    OTHERS,
    "_INBOX.x",
    "_INBOX_srv.x",
    "_INBOX_gateway.x",
    "_TAKEN.x",
    "_R_.x",
    "anything",
)
#: what only makes sense to subscribe to
WILD: Sequence[str] = (
    ">",
    "*",
    "loro.>",
    "loro.*.d1",
    "loro.wal.*",
    "loro.accepted.*",
    "loro.accepted.>",
    "loro.status.*",
    "loro.awareness.*",
    "loro.awareness.d*",
    "_INBOX_*.>",
    "_INBOX_{other}.>",
    "_INBOX_{own}.>",
    "_TAKEN.>",
    "$SYS.>",
    "$KV.>",
)


@dataclass(frozen=True)
class Who:
    """A person who connects to NATS with a token, or without one."""

    name: str
    token: str | None
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """The subjects that NATS allowed to a person."""

    welcome: bool
    publish: frozenset[str] = frozenset()
    subscribe: frozenset[str] = frozenset()


def unsigned() -> str:
    """A token whose header claims that it needs no signature."""
    claims = {"aud": "lorogo", "sub": "x", "exp": int(time.time()) + 600, "documents": {"*": "admin"}}
    parts = [{"alg": "none", "typ": "JWT", "kid": "k1"}, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, ""])


async def everybody(closed: Closed) -> list[Who]:
    """All kinds of people."""
    revoked = mint({"*": "admin"})
    await list_of(closed.authority).revoke_token(tokens.peek(revoked).token_id)
    return [
        Who("no token", None),
        Who("an empty token", ""),
        Who("garbage", "garbage"),
        Who("alg none", unsigned()),
        Who("expired", mint({"*": "admin"}, seconds=-60)),
        Who("a wrong key", mint({"*": "admin"}, key=OTHER_KEY)),
        Who("revoked", revoked),
        Who("names a document that it is not granted", mint({"d2": "admin"}), ("d1",)),
        Who("reader of d1", mint({"d1": "read"})),
        Who("writer of d1", mint({"d1": "write"})),
        Who("admin of d1", mint({"d1": "admin"})),
        Who("admin of d2", mint({"d2": "admin"})),
        Who("writer of d*, names none", mint({"d*": "write"})),
        Who("writer of d*, names d1", mint({"d*": "write"}), ("d1",)),
        Who("writer of d*, names d2", mint({"d*": "write"}), ("d2",)),
        Who("reader of *", mint({"*": "read"})),
        Who("operator", mint({"*": "admin"})),
        Who("operator, names d2", mint({"*": "admin"}), ("d2",)),
    ]


async def attempt(closed: Closed, who: Who) -> Found:
    """Try every subject. Published subjects are those that a server received, subscribed ones those that
    arrived.
    """
    if who.token is None:
        raw = await Raw.open(closed.url)
    else:
        raw = await closed.raw(who.token, *who.documents)
    async with raw:
        if not raw.welcome:
            return Found(False)
        names = {"own": tokens.user_of(who.token or ""), "other": tokens.user_of("another's")}
        tried = {subject.format_map(names): subject for subject in TRIED}
        wild = {subject.format_map(names): subject for subject in WILD}
        published = await _publish(closed, raw, tried)
        subscribed = await _subscribe(closed, raw, tried, wild)
        return Found(True, published, subscribed)


async def _publish(closed: Closed, raw: Raw, tried: Mapping[str, str]) -> frozenset[str]:
    received: set[str] = set()

    def hear(message: Message) -> None:
        if message.data == b"tried" and not message.headers:  # JetStream's own copies have some
            received.add(message.subject)

    subscription = await closed.server.bus.subscribe(">", hear)
    await closed.server.bus.barrier()
    for subject in tried:
        raw.publish(subject, b"tried")
    await raw.ping()
    await closed.server.bus.barrier()
    await subscription.close()
    refused = _refused(raw, "Publish")
    # NATS refuses exactly the subjects that did not arrive
    assert received & set(tried) == set(tried) - refused, (received, refused)
    return frozenset(tried[subject] for subject in received & set(tried))


async def _subscribe(
    closed: Closed, raw: Raw, tried: Mapping[str, str], wild: Mapping[str, str]
) -> frozenset[str]:
    raw.errors.clear()
    everything = {**tried, **wild}
    for sid, subject in enumerate(everything, 1):
        raw.subscribe(subject, sid)
    await raw.ping()
    refused = _refused(raw, "Subscription")
    allowed = set(everything) - refused
    raw.received.clear()
    said = [subject for subject in tried if not subject.startswith("$")]  # NATS would act on those
    for subject in said:
        await closed.server.bus.publish(subject, b"said")
    await closed.server.bus.barrier()
    await raw.ping()
    received = {subject for subject, body in raw.received if body == b"said"}
    assert {subject for subject in received if subject not in _covered(allowed, said)} == set()
    assert allowed & set(said) <= received, (allowed & set(said)) - received
    return frozenset(everything[subject] for subject in allowed)


def _covered(allowed: set[str], said: Sequence[str]) -> set[str]:
    """The published subjects that the allowed patterns match."""
    covered = set()
    for pattern in allowed:
        form = re.escape(pattern).replace(r"\*", r"[^.]+").replace(">", ".+")
        covered |= {subject for subject in said if re.fullmatch(form, subject)}
    return covered


def _refused(raw: Raw, what: str) -> set[str]:
    found = [_VIOLATION.search(error) for error in raw.errors]
    assert all(found), raw.errors
    return {match[2] for match in found if match is not None and match[1] == what}


def markdown(results: Sequence[tuple[Who, Found]]) -> str:
    """Return the table and the subjects that no token grants: `p` may publish, `s` may subscribe.

    Tokens with the same rights share a column, subjects with the same cells a row.
    """
    outside = [who.name for who, found in results if not found.welcome]
    columns: dict[Found, list[str]] = {}
    for who, found in results:
        if found.welcome:
            columns.setdefault(found, []).append(who.name)
    rows: dict[tuple[str, ...], list[str]] = {}
    for subject in (*TRIED, *WILD):
        cells = tuple(
            ("p" if subject in found.publish else "") + ("s" if subject in found.subscribe else "")
            for found in columns
        )
        rows.setdefault(cells, []).append(f"`{subject}`")
    granted_to_none = rows.pop(("",) * len(columns))
    return "\n".join(
        [
            f"NATS refuses the connection: {', '.join(outside)}.",
            "",
            "`p`: may publish; `s`: may subscribe; empty: neither.",
            "",
            "| subject | " + " | ".join("; ".join(names) for names in columns.values()) + " |",
            "|---" * (len(columns) + 1) + "|",
            *(f"| {', '.join(subjects)} | {' | '.join(cells)} |" for cells, subjects in rows.items()),
            "",
            f"No token may publish or subscribe: {'; '.join(granted_to_none)}.",
        ]
    )


async def table() -> str:
    """Try every subject as every person; return the results as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        async with closed_nats(Path(folder)) as closed:
            return markdown([(who, await attempt(closed, who)) for who in await everybody(closed)])


PAGE = """\
# Rights of tokens on a closed NATS

Generated by `python -m tests.security.nats_table`, which tries every right on a real nats-server, and
compared by a test. Design: [decision 0016](decisions/0016-tokens-and-rights.md).

{table}
"""

if __name__ == "__main__":
    sys.stdout.write(PAGE.format(table=asyncio.run(table())))

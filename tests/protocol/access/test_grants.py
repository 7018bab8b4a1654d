"""Rights of tokens: patterns, the highest grant, and the subjects of each right."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lorogo_protocol.access import grants
from lorogo_protocol.access.grants import EVERYTHING, Access, Grants, InvalidGrants
from lorogo_protocol.limits import GRANTS_MAX
from lorogo_protocol.messages import subjects
from lorogo_transport.rpc.subject_patterns import matches as subject_matches

#: few letters, so that patterns match often
FEW = st.text("ab-", max_size=8)
PATTERNS = st.text("ab-*", max_size=8)


def by_regex(pattern: str, document_id: str) -> bool:
    """The same question, asked of the library of regular expressions."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), document_id, re.DOTALL) is not None


@given(PATTERNS, FEW)
@example("a*a", "a")
@example("*a*a*", "aa")
@example("a*b*b", "ab")
@example("**", "")
def test_a_star_is_any_number_of_any_characters(pattern: str, document_id: str) -> None:
    """Patterns mean what the regular expression with `.*` for `*` means."""
    assert grants.matches(pattern, document_id) == by_regex(pattern, document_id)


def test_a_hostile_pattern_takes_no_time() -> None:
    """128 characters of stars and letters are decided in one pass, not in all the ways to place them."""
    assert not grants.matches("a*" * 63 + "b", "a" * 128)


@given(st.dictionaries(PATTERNS.filter(bool), st.sampled_from(list(Access)[1:]), max_size=6), FEW)
def test_the_highest_of_all_grants_counts(table: dict[str, Access], document_id: str) -> None:
    """The right is the highest of all matching grants; without a match it is none."""
    expected = max((a for p, a in table.items() if by_regex(p, document_id)), default=Access.NONE)
    assert Grants(tuple(table.items())).access(document_id) == expected


def test_what_is_granted_everywhere() -> None:
    """Only stars alone mean every document."""
    assert EVERYTHING.everywhere is Access.ADMIN
    assert grants.parse({"**": "read", "a*": "admin", "b": "write"}).everywhere is Access.READ
    assert Grants().everywhere is Access.NONE
    assert Grants().access("a") is Access.NONE


def test_grants_read_back_as_they_were_said() -> None:
    """Words in, words out; the documents that are named whole are known."""
    said = {"minutes-*": "write", "plans-7": "read", "a=b": "admin"}
    granted = grants.parse(said)
    assert granted.words() == said
    assert granted.named == ("plans-7", "a=b")


NOT_GRANTS: list[tuple[Any, str]] = [
    (None, "must be a map"),
    ([], "must be a map"),
    ("minutes-*", "must be a map"),
    ({"a": "READ"}, "must be given read, write or admin, not 'READ'"),
    ({"a": "none"}, "must be given"),
    ({"a": ""}, "must be given"),
    ({"a": 2}, "must be given"),
    ({"a": None}, "must be given"),
    ({"a": ["read"]}, "must be given"),
    ({"a": "x" * 5000}, "not 'xxxxxxxxxxxxxxxxxxxx'"),
    ({"": "read"}, "neither a document id nor a pattern"),
    ({"a b": "read"}, "neither"),
    ({"a.b": "read"}, "neither"),
    ({"a>": "read"}, "neither"),
    ({"ä": "read"}, "neither"),
    ({"a\n": "read"}, "neither"),
    ({"-a": "read"}, "neither"),
    ({"_kv*": "read"}, "neither"),
    ({"a" * 129: "read"}, "neither"),
    ({7: "read"}, "neither"),
    ({f"d{n}": "read" for n in range(GRANTS_MAX + 1)}, "257 entries, at most 256"),
]


@pytest.mark.parametrize(("claim", "problem"), NOT_GRANTS)
def test_what_is_no_table_of_grants(claim: object, problem: str) -> None:
    """The table is refused whole, with a short sentence that names the place."""
    with pytest.raises(InvalidGrants, match=problem) as refused:
        grants.parse(claim)
    assert len(str(refused.value)) < 300


def test_as_many_as_are_allowed() -> None:
    """256 grants are taken, and so are names of 128 characters."""
    assert len(grants.parse({f"d{n}": "read" for n in range(GRANTS_MAX)}).table) == GRANTS_MAX
    assert grants.parse({"a" * 128: "read"}).named == ("a" * 128,)


READ = {
    "_TAKEN.>", "loro.ping.d", "loro.init.d", "loro.awareness.d", "loro.doc.sync.d", "loro.doc.version.d",
    "loro.doc.status.d", "loro.doc.get.d", "loro.doc.history.d", "loro.doc.export.d", "loro.doc.fork.d",
}  # fmt: skip
WRITE = READ | {
    "loro.wal.d", "loro.doc.patch.d", "loro.doc.revert.d", "loro.doc.import.d", "loro.doc.delete.d",
    "loro.doc.restore.d",
}  # fmt: skip
ADMIN = WRITE | {"loro.doc.compact.d", "loro.reset.d"}
SUBSCRIBED = {"_INBOX_u.>", "loro.accepted.d", "loro.status.d", "loro.awareness.d"}


@pytest.mark.parametrize(
    ("access", "publish", "subscribe"),
    [
        (Access.NONE, {"_TAKEN.>"}, {"_INBOX_u.>"}),
        (Access.READ, READ, SUBSCRIBED),
        (Access.WRITE, WRITE, SUBSCRIBED),
        (Access.ADMIN, ADMIN, SUBSCRIBED),
    ],
)
def test_the_subjects_of_each_right(access: Access, publish: set[str], subscribe: set[str]) -> None:
    """They are those of the table in docs/decisions/0016, and no others."""
    allowed = grants.subjects_of("u", [("d", access)])
    assert (set(allowed.publish), set(allowed.subscribe)) == (publish, subscribe)


FORBIDDEN = [
    "$JS.API.STREAM.PURGE.loro-wal", "$JS.API.INFO", "$KV.loro-document-status.d",
    "$O.loro-document-snapshots.M.x", "_INBOX_v.1", "_INBOX.x",
    "$SRV.PING.lorogo", "$SYS.REQ.SERVER.PING", "loro.committed.d", "loro.rejected.d", "loro.server.started",
    "loro.server.feed.s", "loro.server.vouched.d", "loro.erased.d",
    "loro.revoked.tok_x", subjects.revoked_key("tok_x"),
]  # fmt: skip


@pytest.mark.parametrize("subject", FORBIDDEN)
def test_no_token_reaches_the_other_subjects(subject: str) -> None:
    """Not even an operator's token publishes or subscribes to subjects between servers and JetStream."""
    allowed = grants.subjects_of("u", [("*", Access.ADMIN)])
    assert not any(subject_matches(pattern, subject) for pattern in allowed.publish + allowed.subscribe)

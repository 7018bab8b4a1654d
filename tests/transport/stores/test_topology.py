"""The streams that lorogo needs, and what may be changed on one that exists."""

from dataclasses import replace
from typing import Any

import pytest

from lorogo_protocol.messages import subjects
from lorogo_transport.ports import StreamSpec
from lorogo_transport.stores import topology

SPECS = {spec.name: spec for spec in topology.specs(replicas=1, wal_bytes_max=1000)}
WAL = SPECS[subjects.WAL_STREAM]
GUARDED_WAL = replace(WAL, no_ack=True)
STATUS = SPECS[subjects.STATUS_STREAM]
REJECTED = SPECS[subjects.REJECTED_STREAM]
PRESENCE = SPECS[subjects.PRESENCE_STREAM]
REVOKED = SPECS[subjects.REVOKED_STREAM]


def test_the_names_on_the_wire() -> None:
    """Names and rules are those of the protocol."""
    assert {name: spec.subjects for name, spec in SPECS.items()} == {
        "loro-wal": ("loro.wal.*",),
        "KV_loro-document-status": ("$KV.loro-document-status.>",),
        "OBJ_loro-document-snapshots": (
            "$O.loro-document-snapshots.C.>",
            "$O.loro-document-snapshots.M.>",
        ),
        "loro-rejected": ("loro.rejected.*",),
        "KV_loro-revoked": ("$KV.loro-revoked.>",),
        "KV_loro-presence": ("$KV.loro-presence.>",),
    }
    assert WAL.republish == ("loro.wal.*", "loro.committed.{{wildcard(1)}}")
    assert STATUS.republish == ("$KV.loro-document-status.*", "loro.status.{{wildcard(1)}}")
    assert (WAL.bytes_max, WAL.discard_new, WAL.deny_delete, WAL.allow_rollup) == (1000, True, False, False)
    assert (REJECTED.age_max_seconds, REJECTED.discard_new) == (7 * 24 * 3600, False)
    assert REVOKED.republish == ("$KV.loro-revoked.*", "loro.revoked.{{wildcard(1)}}")
    assert (REVOKED.bytes_max, REVOKED.messages_per_subject_max, REVOKED.discard_new) == (
        64 * 1024**2,
        1,
        True,
    )
    assert all(spec.replicas == 3 for spec in topology.specs(replicas=3))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_stream_of_ours_needs_nothing(spec: StreamSpec) -> None:
    """A stream that lorogo created needs no changes."""
    plan = topology.plan(spec, topology.config_of(spec))
    assert (plan.changes, plan.differences) == ((), ())


SAFE: list[tuple[StreamSpec, dict[str, Any], dict[str, Any]]] = [
    (
        WAL,
        {"republish": None},
        {"republish": {"src": "loro.wal.*", "dest": "loro.committed.{{wildcard(1)}}"}},
    ),
    (
        WAL,
        {"republish": {"src": "loro.wal.*", "dest": "old.{{wildcard(1)}}"}},
        {"republish": {"src": "loro.wal.*", "dest": "loro.committed.{{wildcard(1)}}"}},
    ),
    (
        WAL,
        {"republish": {"src": "loro.wal.*", "dest": "loro.committed.{{wildcard(1)}}", "headers_only": True}},
        {"republish": {"src": "loro.wal.*", "dest": "loro.committed.{{wildcard(1)}}"}},
    ),
    (WAL, {"max_bytes": -1}, {"max_bytes": 1000}),
    (WAL, {"max_bytes": 5000}, {"max_bytes": 1000}),
    (PRESENCE, {"max_bytes": -1}, {"max_bytes": 128 * 1024**2}),
    (WAL, {"max_age": 5}, {"max_age": 0}),
    (WAL, {"discard": "old"}, {"discard": "new"}),
    (WAL, {"allow_direct": False}, {"allow_direct": True}),
    (WAL, {"allow_rollup_hdrs": True}, {"allow_rollup_hdrs": False}),
    (WAL, {"max_msgs_per_subject": 5}, {"max_msgs_per_subject": -1}),
    (WAL, {"discard_new_per_subject": True}, {"discard_new_per_subject": False}),
    (WAL, {"allow_atomic": True}, {"allow_atomic": False}),
    (WAL, {"allow_batched": True}, {"allow_batched": False}),
    (GUARDED_WAL, {"no_ack": False}, {"no_ack": True}),
    (STATUS, {"deny_delete": False}, {"deny_delete": True}),
    (STATUS, {"allow_rollup_hdrs": False}, {"allow_rollup_hdrs": True}),
    (REJECTED, {"max_age": 0}, {"max_age": 604_800_000_000_000}),
    (REJECTED, {"discard": "new"}, {"discard": "old"}),
]


@pytest.mark.parametrize(("spec", "existing", "expected"), SAFE)
def test_what_is_safe_to_change(spec: StreamSpec, existing: dict[str, Any], expected: dict[str, Any]) -> None:
    """The change is made and named; everything else stays as it was."""
    config = {**topology.config_of(spec), **existing, "compression": "s2"}
    plan = topology.plan(spec, config)
    assert plan.differences == ()
    assert plan.config == {**config, **expected}
    assert [change.partition(":")[0] for change in plan.changes] == list(expected)


UNSAFE: list[tuple[StreamSpec, dict[str, Any], str]] = [
    (WAL, {"subjects": ["loro.wal.*", "more"]}, "subjects are loro.wal.*, more, not loro.wal.*"),
    (WAL, {"subjects": None}, "subjects are none, not loro.wal.*"),
    (WAL, {"storage": "memory"}, "storage is memory, not file"),
    (WAL, {"retention": "workqueue"}, "retention is workqueue, not limits"),
    (WAL, {"persist_mode": "async"}, "persist_mode is async, not default"),
    (WAL, {"sealed": True}, "sealed is set"),
    (WAL, {"deny_purge": True}, "deny_purge is set"),
    (WAL, {"deny_delete": True}, "deny_delete is set"),
    (WAL, {"allow_msg_ttl": True}, "allow_msg_ttl is set"),  # NATS cannot take it back
    (WAL, {"allow_msg_schedules": True}, "allow_msg_schedules is set"),
    (WAL, {"mirror": {"name": "x"}}, "mirror is set"),
    (WAL, {"sources": [{"name": "x"}]}, "sources is set"),
    (WAL, {"subject_transform": {"src": "a", "dest": "b"}}, "subject_transform is set"),
]


def test_an_open_server_does_not_take_back_what_a_closed_one_needs() -> None:
    """JetStream would again answer publishers at any reply subject; the difference names the command for the
    operator.
    """
    plan = topology.plan(WAL, topology.config_of(GUARDED_WAL))
    assert (plan.changes, len(plan.differences)) == ((), 1)
    assert "--keys" in plan.differences[0] and "nats stream edit loro-wal --ack" in plan.differences[0]


@pytest.mark.parametrize(("spec", "existing", "difference"), UNSAFE)
def test_what_is_not(spec: StreamSpec, existing: dict[str, Any], difference: str) -> None:
    """The difference is named."""
    assert topology.plan(spec, {**topology.config_of(spec), **existing}).differences == (difference,)


LEFT_ALONE: list[tuple[StreamSpec, dict[str, Any]]] = [
    (replace(WAL, no_ack=None), {"no_ack": True}),  # None: the caller does not know whether there are tokens
    (WAL, {"num_replicas": 5}),  # never fewer copies than there are
    (STATUS, {"max_msgs_per_subject": 5}),  # more history than we need
    (STATUS, {"max_bytes": 5000}),  # a limit where we set none
    (STATUS, {"allow_msg_ttl": True, "allow_atomic": True}),  # only services write there
    (REJECTED, {"republish": {"src": ">", "dest": "x.>"}}),
    (WAL, {"description": "ours", "placement": {"cluster": "c"}, "max_msg_size": 5}),
]


@pytest.mark.parametrize(("spec", "existing"), LEFT_ALONE)
def test_what_is_the_operators(spec: StreamSpec, existing: dict[str, Any]) -> None:
    """Settings that do not hurt us are left alone."""
    plan = topology.plan(spec, {**topology.config_of(spec), **existing})
    assert (plan.changes, plan.differences) == ((), ())


def test_more_replicas() -> None:
    """Replicas are raised."""
    (wal, *_) = topology.specs(replicas=3, wal_bytes_max=1000)
    assert topology.plan(wal, topology.config_of(WAL)).changes == ("num_replicas: 1 -> 3",)

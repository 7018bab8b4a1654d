"""The streams of lorogo, and the migration of existing streams to their settings.

Pure. `specs()` returns the required streams, `config_of()` converts a spec to JetStream's configuration, and
`plan()` compares it with an existing stream: changes that are safe, and differences that are not.
Settings that a spec does not name (placement, compression, description, ...) belong to the operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lorogo_protocol.limits import KEPT_PRESENCE_BYTES_MAX, REJECTED_KEEP_SECONDS, REVOKED_BYTES_MAX
from lorogo_protocol.messages.subjects import (
    PRESENCE_BUCKET,
    PRESENCE_STREAM,
    REJECTED_STREAM,
    REVOKED_STREAM,
    SNAPSHOT_BUCKET,
    SNAPSHOT_STREAM,
    STATUS_BUCKET,
    STATUS_STREAM,
    WAL_STREAM,
    committed,
    rejected,
    revoked,
    revoked_key,
    status,
    wal,
)
from lorogo_transport.ports import StreamSpec

_SECOND_NS = 1_000_000_000
_TOKEN = "{{wildcard(1)}}"  # the document id, in the destination of a republish rule
_DEFAULTS: Mapping[str, Any] = {
    "discard": "old",
    "allow_direct": False,
    "allow_rollup_hdrs": False,
    "max_age": 0,
}
_FOREIGN = ("sealed", "deny_purge", "mirror", "sources", "subject_transform", "allow_msg_counter")
# Settings that give headers power over the stream. Every client with a token for a document publishes to the
# WAL.
_HEADER_POWERS_FOR_EVER = ("allow_msg_ttl", "allow_msg_schedules")
_HEADER_POWERS = ("allow_atomic", "allow_batched")


@dataclass(frozen=True, slots=True)
class StreamUpdatePlan:
    """The migration of an existing stream to its spec: all changes together, or none."""

    config: Mapping[str, Any]  # the existing configuration with the changes applied
    changes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def specs(
    *,
    replicas: int = 1,
    wal_bytes_max: int = -1,
    kept_presence_bytes_max: int = KEPT_PRESENCE_BYTES_MAX,
    status_first_sequence: int = 0,
    guarded: bool | None = False,
) -> tuple[StreamSpec, ...]:
    """Return every stream that a lorogo server needs.

    Fencing tokens are revisions of the status bucket: `status_first_sequence` (microseconds since
    1970, for example) makes a recreated bucket continue above all revisions of the lost one.

    `guarded`: clients with tokens publish to the WAL, so JetStream must not answer them. It would answer to
    any reply subject, even those to which the client may not publish (docs/decisions/0016). None
    leaves the setting unchanged.
    """
    return (
        StreamSpec(
            name=WAL_STREAM,
            subjects=(wal("*"),),
            republish=(wal("*"), committed(_TOKEN)),
            bytes_max=wal_bytes_max or -1,
            replicas=replicas,
            no_ack=guarded,
        ),
        StreamSpec(
            name=STATUS_STREAM,
            subjects=(f"$KV.{STATUS_BUCKET}.>",),
            republish=(f"$KV.{STATUS_BUCKET}.*", status(_TOKEN)),
            messages_per_subject_max=1,
            replicas=replicas,
            allow_rollup=True,
            deny_delete=True,
            first_sequence=status_first_sequence,
        ),
        StreamSpec(
            name=SNAPSHOT_STREAM,
            subjects=(f"$O.{SNAPSHOT_BUCKET}.C.>", f"$O.{SNAPSHOT_BUCKET}.M.>"),
            replicas=replicas,
            allow_rollup=True,
        ),
        StreamSpec(
            name=REJECTED_STREAM,
            subjects=(rejected("*"),),
            age_max_seconds=REJECTED_KEEP_SECONDS,
            replicas=replicas,
            discard_new=False,
        ),
        StreamSpec(
            name=REVOKED_STREAM,
            subjects=(revoked_key(">"),),
            republish=(revoked_key("*"), revoked(_TOKEN)),
            messages_per_subject_max=1,
            bytes_max=REVOKED_BYTES_MAX,
            replicas=replicas,
            allow_rollup=True,
        ),
        StreamSpec(
            name=PRESENCE_STREAM,
            subjects=(f"$KV.{PRESENCE_BUCKET}.>",),
            messages_per_subject_max=1,
            bytes_max=kept_presence_bytes_max,
            replicas=replicas,
            allow_rollup=True,
        ),
    )


def config_of(spec: StreamSpec) -> dict[str, Any]:
    """Convert the spec to JetStream's stream configuration."""
    config: dict[str, Any] = {
        "name": spec.name,
        "subjects": list(spec.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "new" if spec.discard_new else "old",
        "max_msgs_per_subject": spec.messages_per_subject_max,
        "max_bytes": spec.bytes_max,
        "max_age": round(spec.age_max_seconds * _SECOND_NS),
        "num_replicas": spec.replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": spec.allow_rollup,
        "deny_delete": spec.deny_delete,
        "deny_purge": False,
    }
    if spec.no_ack:
        config["no_ack"] = True
    if spec.republish is not None:
        config["republish"] = _republish(spec)
    if spec.first_sequence:
        config["first_seq"] = spec.first_sequence
    return config


def plan(spec: StreamSpec, existing: Mapping[str, Any]) -> StreamUpdatePlan:
    """Plan the migration of an existing stream's configuration to `spec`."""
    wanted = config_of(spec)
    updates: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        if (existing.get(name) or default) != wanted[name]:
            updates[name] = wanted[name]
    if spec.republish is not None and not _same_republish(existing.get("republish"), wanted["republish"]):
        updates["republish"] = wanted["republish"]
    if _limit(existing.get("max_msgs_per_subject")) < _limit(spec.messages_per_subject_max):
        updates["max_msgs_per_subject"] = spec.messages_per_subject_max  # a higher limit is fine
    if spec.bytes_max > 0 and existing.get("max_bytes", -1) != spec.bytes_max:
        updates["max_bytes"] = spec.bytes_max
    if existing.get("num_replicas", 1) < spec.replicas:
        updates["num_replicas"] = spec.replicas  # never fewer: the operator decides that
    if existing.get("discard_new_per_subject"):
        updates["discard_new_per_subject"] = False
    if spec.no_ack and not existing.get("no_ack"):
        updates["no_ack"] = True
    if spec.deny_delete and not existing.get("deny_delete"):
        updates["deny_delete"] = True
    if spec.name == WAL_STREAM:
        updates |= {name: False for name in _HEADER_POWERS if existing.get(name)}
    changes = [f"{name}: {_words(existing.get(name))} -> {_words(value)}" for name, value in updates.items()]
    return StreamUpdatePlan({**existing, **updates}, tuple(changes), tuple(_differences(spec, existing)))


def _differences(spec: StreamSpec, existing: Mapping[str, Any]) -> list[str]:
    """Return the differences that cannot be changed safely on a live stream."""
    found = []
    subjects = existing.get("subjects") or []
    if set(subjects) != set(spec.subjects):
        found.append(f"subjects are {_words(subjects)}, not {_words(list(spec.subjects))}")
    if existing.get("storage", "file") != "file":
        found.append(f"storage is {existing['storage']}, not file")
    if existing.get("retention", "limits") != "limits":
        found.append(f"retention is {existing['retention']}, not limits")
    if existing.get("persist_mode", "default") not in ("default", ""):
        found.append(f"persist_mode is {existing['persist_mode']}, not default")
    if existing.get("deny_delete") and not spec.deny_delete:
        found.append("deny_delete is set")
    if existing.get("no_ack") and spec.no_ack is False:
        found.append(
            "no_ack is set, so clients with tokens write here: start the server with --keys; if there are"
            f" no tokens any more, remove the setting with `nats stream edit {spec.name} --ack`"
        )
    foreign = _FOREIGN + (_HEADER_POWERS_FOR_EVER if spec.name == WAL_STREAM else ())
    return found + [f"{name} is set" for name in foreign if existing.get(name)]


def _republish(spec: StreamSpec) -> dict[str, str]:
    assert spec.republish is not None
    source, destination = spec.republish
    return {"src": source, "dest": destination}


def _same_republish(existing: Mapping[str, Any] | None, wanted: Mapping[str, str]) -> bool:
    if existing is None or existing.get("headers_only"):
        return False
    return (existing.get("src"), existing.get("dest")) == (wanted["src"], wanted["dest"])


def _limit(value: int | None) -> float:
    """Return a limit as a number; no limit is infinite."""
    return value if value is not None and value > 0 else float("inf")


def _words(value: object) -> str:
    match value:
        case None:
            return "none"
        case {"src": source, "dest": destination}:
            return f"{source} to {destination}"
        case list():
            return ", ".join(str(item) for item in value) or "none"
        case _:
            return str(value)

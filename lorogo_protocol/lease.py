"""Lease protocol of a document: status changes that clients and servers may make.

Every change is a compare-and-swap on the revision that was read. An entry is stale when *this process* has
seen its revision unchanged for long enough (`seen_seconds`). Timestamps are never compared: the clocks of two
machines may be an hour apart (docs/PROTOCOL.md, "Clocks").

            client: no reply                  server: handles the init
    none ─┐                                   (more than 3 loads failed)
    DOWN ─┼──────────▶ STARTING ───────────────────────────▶ ERROR ── operator: reset ──▶ DOWN
     UP  ─┘               │  ▲ stale for 5 s: any client, new operation
      ▲                   │  └──┘
      └───────────────────┘ server: loaded            server: graceful stop ──▶ DOWN

`retry_count` counts attempts, `failures` counts failures of the document: an attempt that a kill or an
outage of NATS interrupted does not count as a failure (docs/decisions/0022).
"""

from dataclasses import dataclass, replace
from typing import assert_never

from lorogo_protocol import limits
from lorogo_protocol.status import Down, Failed, Starting, Status, Up


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """A status and the headers of its entry."""

    status: Status
    revision: int
    server: str = ""  # LORO_SERVER: the server that wrote it; empty: a client or an operator
    lease: int = 0  # LORO_LEASE: the token; 0 on the acquiring write
    head: int = 0  # LORO_HEAD: sequence of the owner's last accepted update
    trace: str = ""  # LORO_TRACE: of the failed load
    failures: int = 0  # LORO_FAILURES: loads that ran and failed since the document was UP or DOWN
    taken_from: str = ""  # LORO_TAKEN_FROM: on STARTING, the previous owner that did not write DOWN
    # LORO_JOURNAL_OF: the server whose journal may hold more of the document than NATS: the owner, until it
    # writes DOWN. Every other writer copies it, so it stays until an owner has compared journals and is UP.
    journal_of: str = ""

    @property
    def token(self) -> int:
        """Fencing token: the revision of the acquiring write."""
        if self.lease:
            return self.lease
        return self.revision if self.server else 0


# --- a client, or a server for a client without rights on the bucket ------------------------------


@dataclass(frozen=True, slots=True)
class Serve:
    """The document is UP: use it."""


@dataclass(frozen=True, slots=True)
class Ping:
    """The status is UP: ping the owner."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A server is starting the document: check again when the status changes, or after this time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RequestStart:
    """Write STARTING with this retry count, expecting this revision; then send the init."""

    retry_count: int
    expected_revision: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The document is in ERROR until an operator resets it."""

    trace_id: str


ClientStep = Serve | Ping | Wait | RequestStart | GiveUp


def wish(
    entry: StatusEntry | None,
    *,
    seen_seconds: float,
    ping: bool | None = None,
    init_answered: bool = False,
    stale_seconds: float = limits.STALE_SECONDS,
) -> ClientStep:
    """Return the next step to have the document served.

    `ping`: True if the owner replied, False if the ping had no responders, None without a ping or a reply in
    time. `init_answered`: a server replied to the init of this STARTING.
    """
    if entry is None:
        return RequestStart(0, 0)
    stale = seen_seconds >= stale_seconds
    left = max(0.0, stale_seconds - seen_seconds)
    match entry.status:
        case Down():
            return RequestStart(0, entry.revision)
        case Failed(trace_id):
            return GiveUp(trace_id)
        case Starting(retry_count=count):
            if not stale:
                return Wait(left)
            server_failed = bool(entry.server) or init_answered
            return RequestStart(count + 1 if server_failed else count, entry.revision)
        case Up():
            if ping is True:
                return Serve()
            if ping is False or stale:
                return RequestStart(0, entry.revision)
            return Ping()
        case _:
            assert_never(entry.status)


def taken_from(entry: StatusEntry | None) -> str:
    """Return the previous owner if a STARTING over this entry takes the document over; "" otherwise."""
    match entry:
        case StatusEntry(status=Up(server_id=server_id)):
            return server_id
        case StatusEntry(status=Starting()):
            return entry.server or entry.taken_from
        case _:
            return ""


# --- a server that handles an init ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one document: loads that ran and failed, and the trace id of the last one."""

    count: int = 0
    trace_id: str = ""


NO_FAILURES = Failures()


@dataclass(frozen=True, slots=True)
class Acquire:
    """Write STARTING with this server's id, expecting this revision: the new revision is the token."""

    status: Starting
    expected_revision: int
    failures: Failures = NO_FAILURES  # to write with the status
    restarted: bool = False  # the retry count exceeded the limit, the failures did not: wait before the load


@dataclass(frozen=True, slots=True)
class Condemn:
    """The document failed too often: write ERROR, expecting this revision."""

    failures: Failures
    expected_revision: int


@dataclass(frozen=True, slots=True)
class Decline:
    """This server must not acquire the document."""

    why: str


AcquireStep = Acquire | Condemn | Decline


def begins_series(entry: StatusEntry) -> bool:
    """Return True if a STARTING is the first attempt since the document was UP or DOWN."""
    return isinstance(entry.status, Starting) and entry.status.retry_count == 0 and entry.failures == 0


def answer_init(
    entry: StatusEntry | None,
    operation_id: str,
    *,
    known: Failures = NO_FAILURES,
    retries_max: int = limits.RETRIES_MAX,
) -> AcquireStep:
    """Return what the server that got the init must do.

    `known` are the failures that this server recorded in this series of attempts: a client that writes the
    status without `LORO_FAILURES` drops them.
    """
    if entry is None or not isinstance(entry.status, Starting):
        return Decline("the document is not STARTING")
    if entry.status.operation_id != operation_id:
        return Decline("another operation is starting the document")
    if entry.server:
        return Decline("a server has taken this operation already")
    failures = Failures(max(entry.failures, known.count), entry.trace or known.trace_id)
    if failures.count > retries_max:
        return Condemn(failures, entry.revision)
    if entry.status.retry_count > retries_max:
        return Acquire(replace(entry.status, retry_count=0), entry.revision, failures, restarted=True)
    return Acquire(entry.status, entry.revision, failures)


# --- the owner that reads its status --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """The entry is the owner's own write: adopt its revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The entry is a DOWN or ERROR of a client: write UP again, expecting this revision."""

    expected_revision: int


@dataclass(frozen=True, slots=True)
class Reacquire:
    """The key is gone, perhaps with the whole bucket: create it again.

    The revision of that write is a new token: a recreated bucket starts above all revisions of the old one.
    """


@dataclass(frozen=True, slots=True)
class StepDown:
    """Another server owns or starts the document: close it at once."""

    why: str


OwnerStep = OwnWrite | Reclaim | Reacquire | StepDown


def owner_step(
    entry: StatusEntry | None,
    *,
    server_id: str,
    token: int,
    revision: int,
    operation_id: str,
    missed: bool = False,
) -> OwnerStep:
    """Return what the owner must do about the newest entry; `revision` is the one it knew.

    `missed`: the owner may have missed entries since then (the connection was lost). Then a DOWN does not
    exclude another owner in between, and writing UP over it could restore an old token after a newer one.
    """
    if entry is None:
        return Reacquire()
    match entry.status:
        case Up(server_id=owner):
            if owner == server_id and entry.token == token:
                return OwnWrite(entry.revision)
            return StepDown(f"server {owner} owns it with token {entry.token}")
        case Starting(operation_id=operation):
            if entry.server == server_id and operation == operation_id and entry.token == token:
                return OwnWrite(entry.revision)
            return StepDown(f"operation {operation} starts it")
        case Down() | Failed():
            if entry.revision <= revision:
                return OwnWrite(revision)  # older than the owner's own write
            if missed or entry.server not in ("", server_id):
                return StepDown("another server may have owned it meanwhile")
            return Reclaim(entry.revision)
        case _:
            assert_never(entry.status)


def lease_valid(*, now: float, confirmed_sent: float, lease_seconds: float = limits.LEASE_SECONDS) -> bool:
    """Return True if an owner may still act; `confirmed_sent` is when it sent its last confirmed renewal."""
    return now < confirmed_sent + lease_seconds

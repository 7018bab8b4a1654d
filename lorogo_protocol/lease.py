"""Who may own a document: what clients and servers may each do to its status.

Every move is a compare-and-swap on the revision that was read. Staleness is judged by how long
*this process* has seen a revision unchanged (`seen_seconds`), never by a timestamp: clocks of two
machines may be an hour apart (docs/PROTOCOL.md, "Clocks").

            client: nobody answers            server: picks up the init
    none ─┐                                   (more than 3 loads failed)
    DOWN ─┼──────────▶ STARTING ───────────────────────────▶ ERROR ── person: reset ──▶ DOWN
     UP  ─┘               │  ▲ stale for 5 s: anyone, new operation
      ▲                   │  └──┘
      └───────────────────┘ server: loaded            server: graceful stop ──▶ DOWN

`retry_count` counts attempts, `failures` counts failures of the document: an attempt that a kill or an
outage of NATS interrupted is no failure (docs/decisions/0022).
"""

from dataclasses import dataclass, replace
from typing import assert_never

from lorogo_protocol import limits
from lorogo_protocol.status import Down, Failed, Starting, Status, Up


@dataclass(frozen=True, slots=True)
class StatusEntry:
    """A status with the facts that travel beside it."""

    status: Status
    revision: int
    server: str = ""  # LORO_SERVER: the server that wrote it; empty: a client or a person did
    lease: int = 0  # LORO_LEASE: the token; 0 on the very write that acquires
    head: int = 0  # LORO_HEAD: the owner's highest accepted sequence
    tail: int = 0  # LORO_TAIL: of the update accepted last, if it had waited for the head; 0: it is the head
    trace: str = ""  # LORO_TRACE: of the load that failed
    failures: int = 0  # LORO_FAILURES: loads that ran and failed since the document was UP or DOWN
    taken_from: str = ""  # LORO_TAKEN_FROM: on STARTING, the server that was gone without saying DOWN

    @property
    def token(self) -> int:
        """The fencing token: the revision of the write that acquired the document."""
        if self.lease:
            return self.lease
        return self.revision if self.server else 0


# --- anyone who wants the document served ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Serve:
    """It is up: go ahead."""


@dataclass(frozen=True, slots=True)
class Ping:
    """It says UP: ask the owner whether it is there."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody is at it; look again when the status changes, or after this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class RequestStart:
    """Move it to STARTING with this retry count, expecting this revision; then send init."""

    retry_count: int
    expected_revision: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is in ERROR until a person resets it."""

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
    """What to do to have the document served.

    `ping`: True the owner answered, False nobody listens there, None not asked or no answer in time.
    `init_answered`: a server answered the init of exactly this STARTING.
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
    """From whom a document is taken by a STARTING over this entry; "": from nobody, it is just started."""
    match entry:
        case StatusEntry(status=Up(server_id=server_id)):
            return server_id
        case StatusEntry(status=Starting()):
            return entry.server or entry.taken_from
        case _:
            return ""


# --- a server that was asked to take it -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one document: loads that ran and failed, and the trace id of the last one."""

    count: int = 0
    trace_id: str = ""


NO_FAILURES = Failures()


@dataclass(frozen=True, slots=True)
class Acquire:
    """Write STARTING again in my name, expecting this revision: its revision is my token."""

    status: Starting
    expected_revision: int
    failures: Failures = NO_FAILURES  # hand them on
    restarted: bool = False  # the count was above the limit without enough failures: wait before the load


@dataclass(frozen=True, slots=True)
class Condemn:
    """The document failed too often: write ERROR, expecting this revision."""

    failures: Failures
    expected_revision: int


@dataclass(frozen=True, slots=True)
class Decline:
    """Not mine to take."""

    why: str


AcquireStep = Acquire | Condemn | Decline


def begins_series(entry: StatusEntry) -> bool:
    """Whether a STARTING is the first attempt since the document was UP or DOWN."""
    return isinstance(entry.status, Starting) and entry.status.retry_count == 0 and entry.failures == 0


def answer_init(
    entry: StatusEntry | None,
    operation_id: str,
    *,
    known: Failures = NO_FAILURES,
    retries_max: int = limits.RETRIES_MAX,
) -> AcquireStep:
    """What the server that picked up the init does.

    `known`: the failures that this server recorded in this series of attempts. A client that moves the
    status without our headers drops `LORO_FAILURES`.
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


# --- the owner that sees its key ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnWrite:
    """My own write: adopt its revision."""

    revision: int


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Somebody wrote DOWN or ERROR: write UP again, expecting this revision."""

    expected_revision: int


@dataclass(frozen=True, slots=True)
class Reacquire:
    """The key is gone, with its whole bucket perhaps: write it as if for the first time.

    The revision of that write is a new token: the bucket that is made again begins above all
    revisions that the old one gave out.
    """


@dataclass(frozen=True, slots=True)
class StepDown:
    """Somebody else owns or starts it: close the document before anything else."""

    why: str


OwnerStep = OwnWrite | Reclaim | Reacquire | StepDown


def owner_sees(
    entry: StatusEntry | None,
    *,
    server_id: str,
    token: int,
    revision: int,
    operation_id: str,
    missed: bool = False,
) -> OwnerStep:
    """What the owner does about the newest entry of its key; `revision` is what it knew.

    `missed`: entries may have gone by unseen since then (the connection was lost). Then a DOWN says
    nothing about who owned the document meanwhile, and to write UP over it could bring back an old
    token after a newer one.
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
                return OwnWrite(revision)  # an old word, overtaken by my own
            if missed or entry.server not in ("", server_id):
                return StepDown("another server may have owned it meanwhile")
            return Reclaim(entry.revision)
        case _:
            assert_never(entry.status)


def lease_valid(*, now: float, confirmed_sent: float, lease_seconds: float = limits.LEASE_SECONDS) -> bool:
    """Whether an owner may still act: `confirmed_sent` is when it sent its last renewal that came back."""
    return now < confirmed_sent + lease_seconds

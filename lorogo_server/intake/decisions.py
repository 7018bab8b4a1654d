"""Decisions of the intake about one message or update, and the refusals among them."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from lorogo_protocol.errors import (
    CrdtError,
    HistoryTrimmed,
    OperationIdsReused,
    TooFarBehind,
    TooLong,
    TooManyPeers,
)
from lorogo_protocol.ids import is_inbox, is_token
from lorogo_protocol.journal.records import Span
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages.chunks import Assembled, AssemblyRejected
from lorogo_protocol.messages.reasons import Reason
from lorogo_protocol.position import Position
from lorogo_transport.ports import StoredMessage

_FOR_EVER = frozenset({Reason.TOO_LARGE, Reason.INVALID_UPDATE, Reason.HISTORY_TRIMMED})


class Accepted(NamedTuple):
    """The update is in the document; `new`: it changed the document."""

    update: Assembled
    previous: int
    position: Position  # of the message that completed it
    new: bool
    spans: tuple[Span, ...]  # what it added


@dataclass(frozen=True, slots=True)
class Again:
    """An accepted update was repeated: answer it again."""

    log_id: str
    digest: str
    inbox: str
    sequence: int


@dataclass(frozen=True, slots=True)
class RefusedUpdate:
    """The update is not in the document; `quarantine`: move it to `loro-rejected`."""

    log_id: str
    digest: str
    inbox: str
    reason: Reason
    message: str
    sequences: tuple[int, ...]
    quarantine: bool


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Loro panicked on the update: send its refusal, then load the document again."""

    refused: RefusedUpdate


Effect = Accepted | Again | RefusedUpdate | Poisoned


@dataclass(frozen=True, slots=True)
class Candidate:
    """A complete update that is not decided yet."""

    update: Assembled
    time_ns: int
    accepted: bool  # a journal has it: only proof of forgery refuses it
    bounded: bool  # no server can have accepted it: it is refused if decoding or importing it takes too long


@dataclass(frozen=True, slots=True)
class Unvalidated:
    """The sandbox must decode the update first; `Intake.validated` continues with it."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Unmerged:
    """The import may take long: a child process tries it; `Intake.merged` continues with it."""

    candidate: Candidate
    behind: bool  # the document has changes that its writer had not


@dataclass(frozen=True, slots=True)
class EarlyUpdate:
    """An update with missing dependencies; its messages stay in the WAL, and bound purge and coverage."""

    candidate: Candidate  # the last copy, with the sequences of all; the payload only during a read
    ends: bytes  # the version vector after it
    deadline: float  # then it is moved to `loro-rejected`

    @property
    def update(self) -> Assembled:
        return self.candidate.update

    @property
    def bytes(self) -> int:
        """Memory that it takes, about."""
        return len(self.update.payload) + len(self.ends) + 1024 + 64 * len(self.update.sequences)

    def without_payload(self) -> "EarlyUpdate":
        """Return what a live owner keeps."""
        update = self.update._replace(payload=b"")
        return replace(self, candidate=replace(self.candidate, update=update))


def reason_of(error: CrdtError) -> Reason:
    """Return the reason of a NACK for an error of the import."""
    match error:
        case HistoryTrimmed():
            return Reason.HISTORY_TRIMMED
        case TooManyPeers() | TooLong():
            return Reason.TOO_LARGE
        case TooFarBehind():
            return Reason.OUTDATED
        case OperationIdsReused():
            return Reason.PEER_REUSED
        case _:
            return Reason.INVALID_UPDATE


def malformed(stored: StoredMessage, why: str) -> RefusedUpdate:
    """Return the refusal of a message that is no chunk; with its ids and inbox if they are valid."""
    inbox = stored.headers.get(h.RESPONSE_INBOX, "")
    log_id = stored.headers.get(h.LOG_ID, "")
    digest = stored.headers.get(h.DIGEST, "")
    return RefusedUpdate(
        log_id if is_token(log_id) else "",
        digest if is_token(digest) else "",
        inbox if is_inbox(inbox) else "",
        Reason.INVALID_UPDATE,
        why,
        (stored.sequence,),
        quarantine=True,
    )


def poisoned(update: Assembled, error: CrdtPanic) -> Poisoned:
    """Return the effect of an update that makes Loro panic."""
    return Poisoned(refuse(update, Reason.INVALID_UPDATE, str(error), quarantine=True))


def refuse(update: Assembled, reason: Reason, message: str, *, quarantine: bool) -> RefusedUpdate:
    """Return the refusal of an update."""
    return RefusedUpdate(
        update.log_id, update.digest, update.inbox, reason, message, update.sequences, quarantine
    )


def busy(update: Assembled) -> RefusedUpdate:
    """Return the refusal of an update that needs a process which cannot be started now."""
    why = "importing the update may take long, and the server cannot start a process for it now; retry"
    return refuse(update, Reason.BUSY, why, quarantine=False)


def is_early(no: RefusedUpdate) -> bool:
    """Return True if only dependencies of the update are missing."""
    return no.reason is Reason.MISSING_DEPENDENCIES


def early_refusal(update: Assembled) -> RefusedUpdate:
    """Return the refusal of an update with missing dependencies."""
    why = "it builds on changes that are not here; sync, and send them too"
    return refuse(update, Reason.MISSING_DEPENDENCIES, why, quarantine=False)


def not_whole(no: AssemblyRejected) -> RefusedUpdate:
    """Return the refusal of an update whose chunks are not complete."""
    quarantine = no.reason in _FOR_EVER
    return RefusedUpdate(no.log_id, no.digest, no.inbox, no.reason, no.message, no.sequences, quarantine)

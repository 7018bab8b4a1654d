"""Phase, requests and storage facts of one open document; pure: `Host` asks it, and executes.

              loaded                  stop
    LOADING ─────────▶ LIVE ────────────────────▶ DRAINING ──▶ CLOSED
       │               │  ▲                          ▲            ▲
       │   read again  ▼  │ read to the end          │            │
       │            REREADING ───────────────────────┘            │
       └───────────── a stop; in any phase: lost or failed ───────┘

Invariants (docs/decisions/0023): CLOSED is final. Only LIVE, REREADING and DRAINING answer. A request stays
until a phase serves it. Both storage facts are independent of the phase.
"""

from collections.abc import Mapping
from enum import Enum, auto


class Phase(Enum):
    """Phase of an open document."""

    LOADING = auto()  # messages are queued, calls refused
    LIVE = auto()  # messages are processed in order, calls answered
    REREADING = auto()  # the stored snapshot or the WAL is read again; calls wait
    DRAINING = auto()  # messages queued before a stop are processed and ACKed, calls refused
    CLOSED = auto()  # nothing is processed or answered


class Transition(Enum):
    """Cause of a change of the phase."""

    LOADED = auto()  # loaded, claimed and journalled
    READ_AGAIN = auto()
    READ_TO_END = auto()
    STOP = auto()
    CLOSE = auto()  # the lease is lost, the document failed, or nothing is left to drain


NEXT_PHASE: Mapping[tuple[Phase, Transition], Phase] = {
    (Phase.LOADING, Transition.LOADED): Phase.LIVE,
    (Phase.LOADING, Transition.STOP): Phase.CLOSED,
    (Phase.LIVE, Transition.READ_AGAIN): Phase.REREADING,
    (Phase.LIVE, Transition.STOP): Phase.DRAINING,
    (Phase.REREADING, Transition.READ_AGAIN): Phase.REREADING,
    (Phase.REREADING, Transition.READ_TO_END): Phase.LIVE,
    (Phase.REREADING, Transition.STOP): Phase.DRAINING,
    (Phase.DRAINING, Transition.READ_AGAIN): Phase.DRAINING,
    (Phase.DRAINING, Transition.READ_TO_END): Phase.DRAINING,
    (Phase.DRAINING, Transition.STOP): Phase.DRAINING,
    **{(phase, Transition.CLOSE): Phase.CLOSED for phase in Phase},
    **{(Phase.CLOSED, transition): Phase.CLOSED for transition in Transition},
}  # a missing pair is a bug of the host


class DocumentState:
    """Phase, requests and storage facts of one document."""

    __slots__ = (
        "_checked",
        "_drain_through",
        "catch_up",
        "closed_because",
        "memory_is_only_copy",
        "phase",
        "reads",
        "reload",
        "rewind",
        "snapshot_unverified",
        "writes_down",
    )

    def __init__(self) -> None:
        self.phase = Phase.LOADING
        self.closed_because = ""  # the first reason for the end
        self.writes_down = False  # the end was requested: hand the document over with DOWN
        self._drain_through: int | None = None  # last sequence to process; None: drop the queue

        self.catch_up = False  # requests: a copy was missed, read the stream from the position on
        self.rewind = False  # the stream changed, read it from its beginning
        self.reload = False  # memory may differ from what is stored, load the document
        self._checked = False  # Loro panicked: the next reload tries every update

        self.memory_is_only_copy = False  # storage facts: store a snapshot before closing
        self.snapshot_unverified = False  # the stored snapshot may be another: read its head before replacing
        self.reads = 0  # how often the WAL was read from its beginning: an earlier judgement is void

    # --- questions --------------------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """True if the document is loaded and takes calls; a call may have to wait for a re-read."""
        return self.phase is Phase.LIVE or self.phase is Phase.REREADING

    @property
    def may_answer(self) -> bool:
        """True if the owner may send ACKs, NACKs, accepted updates and pongs, under a valid lease."""
        return self.is_up or self.phase is Phase.DRAINING

    @property
    def is_ending(self) -> bool:
        """True after a stop or the loss of the lease."""
        return self.phase is Phase.DRAINING or self.phase is Phase.CLOSED

    @property
    def is_settled(self) -> bool:
        """True if memory is current and no re-read is requested or under way."""
        return not (self.reload or self.rewind or self.phase is Phase.REREADING)

    @property
    def is_readable(self) -> bool:
        """True if a call may read memory: it is not being read again, and no reload is requested."""
        return self.phase is Phase.LIVE and not self.reload

    @property
    def has_request(self) -> bool:
        """True if the next turn must read something first."""
        return self.catch_up or self.rewind or self.reload

    @property
    def drains_all(self) -> bool:
        """True if the end waits for the last ACKs; False after a stop at once."""
        return self.phase is Phase.DRAINING and self._drain_through is not None

    def drains(self, sequence: int) -> bool:
        """Return True if the message was queued before a graceful stop."""
        through = self._drain_through
        return self.phase is Phase.DRAINING and through is not None and sequence <= through

    # --- transitions ------------------------------------------------------------------------------

    def loaded(self) -> None:
        """The document is loaded, claimed and journalled."""
        self._move(Transition.LOADED)

    def begin_rewind(self) -> None:
        """Serve the request to read the WAL from its beginning."""
        self.rewind = False
        self._begin_read()

    def begin_reload(self) -> bool:
        """Serve the request to load the document; return True if the load must try every update."""
        checked, self.reload, self._checked = self._checked, False, False
        self._begin_read()
        return checked

    def end_read(self) -> None:
        """The WAL was read to its end."""
        self._move(Transition.READ_TO_END)

    def stop(self, why: str, *, finish: bool, newest: int) -> None:
        """Close and write DOWN; process the queue up to `newest` first, unless a stop is or was at once."""
        if self.phase is Phase.CLOSED:
            return
        at_once = self.phase is Phase.DRAINING and self._drain_through is None
        self._drain_through = newest if finish and not at_once else None
        self.closed_because = self.closed_because or why
        self.writes_down = True
        self._move(Transition.STOP)

    def close(self, why: str) -> None:
        """Process and answer nothing from now on."""
        self.closed_because = self.closed_because or why
        self._move(Transition.CLOSE)

    # --- requests ---------------------------------------------------------------------------------

    def request_reload(self, *, checked: bool = False) -> None:
        """Load the document again; `checked`: try every update, to find one that makes Loro panic."""
        self.reload = True
        self._checked |= checked

    def _begin_read(self) -> None:
        self.reads += 1
        self._move(Transition.READ_AGAIN)

    def _move(self, transition: Transition) -> None:
        self.phase = NEXT_PHASE[self.phase, transition]

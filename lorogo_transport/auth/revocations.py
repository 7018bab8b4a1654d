"""The list of revocations: read completely, kept up to date, and written by operators.

The bucket `loro-revoked` is authoritative, and each verifier of tokens has all of it in memory. It is read at
the start and after every reconnect; new entries are read as soon as JetStream's republished copy announces
them, and every 30 seconds. A republished copy is only a hint: the stream's leader decides. A verifier that
could not read the list for five minutes refuses new connections.

NATS may lose the bucket, so servers store copies of the list on their disks and restore them
(lorogo_server/recovery/revocation_copy.py). They set the key `complete` afterwards: a bucket without it
may be incomplete, and every token is refused. A server writes into `kept_{server id}` the last sequence
that its disk has. An entry that was read refuses tokens until its key is removed, even if the bucket
loses it. Reading needs the subjects `$JS.API.DIRECT.GET.KV_loro-revoked`,
`$JS.API.STREAM.MSG.GET.KV_loro-revoked` and `loro.revoked.*`; revoking needs also `$KV.loro-revoked.*` and
`$JS.API.STREAM.MSG.DELETE.KV_loro-revoked`.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, Self

from lorogo_protocol.access import revocation
from lorogo_protocol.access.revocation import Revocation
from lorogo_protocol.access.tokens import Token
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_transport.clock import Clock
from lorogo_transport.errors import (
    OutcomeUnknown,
    RequestTimeout,
    StorageFull,
    StreamMissing,
    TransportError,
    WrongLastSequence,
)
from lorogo_transport.listeners import Listeners
from lorogo_transport.ports import Message, StoredMessage, Subscription, Transport
from lorogo_transport.tasks import cancel, within
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

ENTRIES_MAX: Final = 1_000_000  # in memory, some 400 bytes each; the bucket's 64 MiB hold about 400,000
POLL_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 60.0
AGE_SECONDS_MAX: Final = 300.0  # of the last read: an older list may lack too much
_NO_LIST: Final = "no server has ever run on this NATS: start `lorogo serve` once to create it"
_INCOMPLETE: Final = (
    "the list of revoked tokens is incomplete: NATS is new or lost it, and a server restores it"
    " (docs/RECOVERY.md)"
)
_KEYS_ALL: Final = subjects.revoked_key("*")
_COMPLETE: Final = "complete"
_KEPT_BY: Final = "kept_"
_KEPT_POLL_SECONDS: Final = 0.05
_DIGITS_MAX: Final = 20
_KV_OPERATION: Final = "KV-Operation"  # DEL or PURGE: the key was removed
_TRIES: Final = 10
_PRUNE_MAX: Final = 1_000  # per call
_PRUNE_AT_ONCE: Final = 16
_PRUNE_LATE_SECONDS: Final = 60.0  # tolerance for clocks of other machines


@dataclass(frozen=True, slots=True)
class _Kept:
    sequence: int  # 0: the bucket lost it
    entry: Revocation | None  # None: the key was removed
    through: int = 0  # of `kept_{server id}`: the last sequence that the server's disk has


class Revocations:
    """The revocations, in memory; `async with` keeps them up to date. Checks are plain calls."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._bus = transport.bus
        self._stream = transport.stream(subjects.REVOKED_STREAM)
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._position = 0  # the last sequence read
        self._reload = True  # the next read must be complete, not incremental
        self._known = False
        self._complete = False
        self._kept_by: dict[str, int] = {}  # server id: the last sequence that its disk has
        self._read_at: float | None = None  # start of the last successful read
        self._problem = ""
        self._listeners: Listeners[()] = Listeners()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._unwatch: Callable[[], None] = lambda: None

    @property
    def known(self) -> bool:
        """True if the complete list was read once; without it no token can be verified."""
        return self._known

    @property
    def complete(self) -> bool:
        """True if the last list read is marked as complete."""
        return self._complete

    @property
    def read_once(self) -> bool:
        """True if the list was read, complete or not."""
        return self._read_at is not None

    @property
    def entries(self) -> dict[str, Revocation]:
        """Every entry, by its key, that may still refuse a token."""
        now = self._now()
        found = ((key, kept.entry) for key, kept in self._kept.items())
        return {key: entry for key, entry in found if entry is not None and not entry.over(now)}

    @property
    def revoked_through(self) -> int:
        """The sequence of the newest entry in the bucket; 0 if it has none."""
        return max((kept.sequence for kept in self._kept.values()), default=0)

    def kept_by(self, sequence: int) -> tuple[str, ...]:
        """Return the servers whose disks have the entry with this sequence."""
        return tuple(sorted(server for server, through in self._kept_by.items() if through >= sequence))

    @property
    def fresh(self) -> bool:
        """True if the list was read recently enough to admit clients."""
        if not (self._known and self._complete and self._read_at is not None):
            return False
        return self._clock.now() - self._read_at <= AGE_SECONDS_MAX

    def refuse(self, token: Token) -> bool:
        """Return whether the token or its subject is revoked. Meaningful only if `known`."""
        if not self._kept:
            return False
        now = self._now()
        for key in (revocation.token_key(token.token_id), revocation.subject_key(token.subject)):
            kept = self._kept.get(key)
            entry = None if kept is None else kept.entry
            if entry is not None and not entry.over(now) and entry.refuses(token):
                return True
        return False

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` whenever the list changes; returns a function that stops it."""
        return self._listeners.add(listener)

    async def __aenter__(self) -> Self:
        """Read the list once; if that fails, a task retries."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            self._unwatch = self._bus.watch_connection(self._on_connection)
            await self._try()
            self._task = asyncio.create_task(self._keep(), name="revocations")
            stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def revoke_token(self, token_id: str, expires: float | None = None) -> int:
        """Refuse this token everywhere from now on; return the sequence of the entry.

        With `expires`, its `exp`, the entry is removed after the token has expired. Raises ValueError
        for an invalid token id, TransportError if the entry may not be stored.
        """
        return await self._revoke(revocation.token_key(token_id), revocation.of_token(self._now(), expires))

    async def revoke_subject(self, subject: str, until: float | None = None) -> int:
        """Refuse every token of this subject issued until now, or without an issue time.

        `until`: when the last of them expires, if known. Returns the sequence of the entry.
        Raises TransportError.
        """
        return await self._revoke(revocation.subject_key(subject), revocation.of_subject(self._now(), until))

    async def wait_kept(self, sequence: int, seconds: float) -> tuple[str, ...]:
        """Wait for a server whose disk has this entry; return such servers, none after so many seconds."""
        deadline = self._clock.now() + seconds
        while True:
            await self.read()
            if (servers := self.kept_by(sequence)) or self._clock.now() >= deadline:
                return servers
            await asyncio.sleep(_KEPT_POLL_SECONDS)

    async def bring_back(self, entries: Mapping[str, Revocation]) -> int:
        """Write the entries that the bucket lost; return their number. Raises TransportError."""
        lost = [(key, entry) for key, entry in entries.items() if self._lacks(key, entry)]
        for key, entry in lost:
            await self._revoke(key, entry)
        return len(lost)

    async def mark_complete(self) -> None:
        """Mark the bucket as complete. Raises TransportError."""
        await self._stream.append(subjects.revoked_key(_COMPLETE), b"1")
        self._complete = True
        self._known = len(self._kept) <= ENTRIES_MAX
        self._listeners.notify()

    async def confirm_kept(self, server_id: str, through: int) -> None:
        """Record that this server's disk has every entry up to this sequence. Raises TransportError."""
        await self._stream.append(subjects.revoked_key(_KEPT_BY + server_id), str(through).encode())

    async def read(self) -> None:
        """Read the list now, without keeping it up to date. Raises TransportError."""
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await self._load()
        except TimeoutError:
            raise RequestTimeout("reading the list of revocations timed out") from None

    async def _keep(self) -> None:
        while True:
            fine = self._known and not self._problem
            await within(POLL_SECONDS if fine else RETRY_SECONDS, self._changed.wait())
            self._changed.clear()
            await self._try()

    async def _try(self) -> None:
        """Read the list; log a repeated error once, and retry later."""
        try:
            if self._subscription is None:
                self._subscription = await self._bus.subscribe(subjects.REVOKED_ALL, self._on_message)
            await self._bus.barrier()  # subscribed before the read, so that no change is missed
            await self.read()
        except LorogoError as error:
            if isinstance(error, StreamMissing):
                self._complete = False
            trouble = _NO_LIST if isinstance(error, StreamMissing) else str(error)
            if self._known and not self.fresh:
                trouble = f"not for {AGE_SECONDS_MAX:g} s, so no client is admitted: {trouble}"
            if trouble != self._problem:
                log.warning("cannot read the list of revocations", problem=trouble, known=self._known)
            self._problem = trouble
        except Exception:  # the list must not go stale because of a bug
            self._problem = "unexpected"
            log.exception("cannot read the list of revocations")
        else:
            if not self._complete:
                if self._problem != _INCOMPLETE:
                    log.warning("cannot read the list of revocations", problem=_INCOMPLETE, known=False)
                self._problem = _INCOMPLETE
                return
            if self._problem:
                # the same level as the problem's, so that its end is visible too
                log.warning("list of revocations read again", entries=len(self._kept))
            self._problem = ""

    async def _load(self) -> None:
        """Read new entries, or the whole list if the position is not usable."""
        began = self._clock.now()
        found, position, again = await self._changes_or_all()
        changed = self._note_controls(found, again)
        if again:
            for key, entry in self.entries.items():  # lost by the bucket: only a removed key ends them
                found.setdefault(key, _Kept(0, entry))
            changed, self._kept = changed or found != self._kept, found
        else:
            changed |= sum(self._put(key, kept) for key, kept in found.items()) > 0
        fits = len(self._kept) <= ENTRIES_MAX
        self._position, self._known = position, fits and (self._known or self._complete)
        self._read_at = began
        if not fits:
            self._kept, self._reload = {}, True  # an incomplete list could not refuse tokens
        if changed:
            log.debug("revocations changed", entries=len(self._kept))
            self._listeners.notify()
        if not fits:
            raise TransportError(f"it has more than {ENTRIES_MAX} entries")

    def _note_controls(self, found: dict[str, _Kept], again: bool) -> bool:
        """Remove the control keys from `found` and apply them; return whether completeness changed."""
        before = self._complete
        if again:
            self._complete, self._kept_by = False, {}
        for key in [key for key in found if key == _COMPLETE or key.startswith(_KEPT_BY)]:
            kept = found.pop(key)
            if key == _COMPLETE:
                self._complete = kept.entry is not None
            else:
                self._kept_by[key.removeprefix(_KEPT_BY)] = kept.through
        return self._complete != before

    def _lacks(self, key: str, entry: Revocation) -> bool:
        kept = self._kept.get(key)
        if kept is None or not kept.sequence:
            return True
        return kept.entry is not None and kept.entry.joined(entry) != kept.entry

    async def _changes_or_all(self) -> tuple[dict[str, _Kept], int, bool]:
        again, self._reload = self._reload, False  # a change during the read is for the next one
        done = False
        try:
            if not again and self._position:
                # if the last entry read is gone, it was pruned or the bucket was recreated
                again = await self._stream.next(_KEYS_ALL, self._position) is None
            found, position = await self._read(0 if again else self._position)
            done = True
        finally:
            self._reload = self._reload or (again and not done)
        return found, position, again

    async def _read(self, position: int) -> tuple[dict[str, _Kept], int]:
        """Read everything after `position`; a lagging replica does not end it early."""
        found: dict[str, _Kept] = {}
        while True:
            async for stored in self._stream.read(_KEYS_ALL, first=position + 1):
                key, found[key] = _kept(stored)
                position = stored.sequence
                if len(found) > ENTRIES_MAX:
                    return found, position
            if await self._stream.next(_KEYS_ALL, position + 1) is None:
                return found, position

    def _on_message(self, _: Message) -> None:
        self._changed.set()

    def _on_connection(self, connected: bool) -> None:
        if connected:
            self._reload = True  # the list may have been replaced
            self._changed.set()

    def _put(self, key: str, kept: _Kept) -> bool:
        known = self._kept.get(key)
        if known is not None and known.sequence >= kept.sequence:
            return False
        self._kept[key] = kept
        return True

    async def _revoke(self, key: str, entry: Revocation) -> int:
        for _ in range(_TRIES):
            stored = await self._stream.last(subjects.revoked_key(key))
            there = None if stored is None else _kept(stored)[1].entry
            value = entry if there is None else there.joined(entry)
            try:
                sequence = await self._append(key, value, 0 if stored is None else stored.sequence)
            except (WrongLastSequence, OutcomeUnknown):
                continue  # another writer, or unknown outcome: read again
            if self._put(key, _Kept(sequence, value)):
                self._listeners.notify()
            await self._prune()
            return sequence
        raise OutcomeUnknown("the revocation was not confirmed and may not be stored: try again")

    async def _append(self, key: str, entry: Revocation, expected: int) -> int:
        subject, data = subjects.revoked_key(key), revocation.encode(entry)
        try:
            return await self._stream.append(subject, data, expected_last=expected)
        except StorageFull:
            if not await self._prune():
                raise
        return await self._stream.append(subject, data, expected_last=expected)

    async def _prune(self) -> int:
        """Remove expired entries; return their number. Failed removals are retried later.

        A removed key stays: without it a server's copy would restore an entry that an operator removed.
        """
        now = self._now() - _PRUNE_LATE_SECONDS
        old = [
            (key, kept)
            for key, kept in self._kept.items()
            if kept.sequence and kept.entry is not None and kept.entry.over(now)
        ][:_PRUNE_MAX]
        removed = 0
        try:
            for start in range(0, len(old), _PRUNE_AT_ONCE):
                some = old[start : start + _PRUNE_AT_ONCE]
                await asyncio.gather(*(self._stream.delete(kept.sequence) for _, kept in some))
                for key, kept in some:
                    if self._kept.get(key) == kept:
                        del self._kept[key]
                removed += len(some)
        except TransportError as error:
            log.warning("cannot remove expired revocations", problem=str(error))
        return removed

    async def _close(self) -> None:
        self._unwatch()
        await cancel(self._task)
        if self._subscription is not None:
            with suppress(TransportError):
                await self._subscription.close()

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9


def _kept(stored: StoredMessage) -> tuple[str, _Kept]:
    key = subjects.document_of(stored.subject)
    if stored.headers.get(_KV_OPERATION):
        return key, _Kept(stored.sequence, None)
    if key.startswith(_KEPT_BY):
        text = stored.data.decode("ascii", "replace")
        through = int(text) if text.isdecimal() and len(text) <= _DIGITS_MAX else 0
        return key, _Kept(stored.sequence, None, through)
    return key, _Kept(stored.sequence, revocation.decode(key, stored.data))

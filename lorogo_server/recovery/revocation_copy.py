"""A copy of the list of revoked tokens on this server's disk, brought back when NATS lost the list.

    DATA/worker-K/revocations    8 bytes xxh64, then JSON: {"format": 1, "entries": {key: {...}, ...}}

Each closed server keeps one, and writes back the entries that the bucket lacks. A bucket without the marker
`complete` refuses every token (lorogo_transport/auth/revocations.py); `judge` decides who may set the marker.
"""

import asyncio
import enum
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import xxhash

from lorogo_log import Directory, FileStorage, LogError, read_file, replace_file
from lorogo_protocol.access import revocation
from lorogo_protocol.access.revocation import Revocation
from lorogo_protocol.errors import LorogoError
from lorogo_protocol.messages import subjects
from lorogo_transport.auth.revocations import Revocations
from lorogo_transport.clock import Clock
from lorogo_transport.ports import Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

NAME = "revocations"
_FORMAT = 1
_CHECK_BYTES = 8
_LOOK_SECONDS = 0.25  # while the list is not complete
_AGAIN_SECONDS = 5.0


class Judgement(enum.Enum):
    """Reaction of a server to a bucket without the marker."""

    WAIT = "wait"
    COMPLETE = "complete"
    REFUSE = "refuse"


def judge(*, has_copy: bool, has_entries: bool, new_nats: bool, waited: bool) -> Judgement:
    """Decide whether this server marks the list as complete.

    It waits first, so that other servers write back their copies. Then it needs a reason: a copy of its own,
    entries in the bucket (nothing was lost), or a NATS without documents (a new deployment).
    """
    if not waited:
        return Judgement.WAIT
    return Judgement.COMPLETE if has_copy or has_entries or new_nats else Judgement.REFUSE


class RevocationCopy:
    """The copy of one server; `run()` is its task."""

    def __init__(
        self,
        transport: Transport,
        directory: Directory | None,
        clock: Clock,
        server_id: str,
        wait_seconds: float,
    ) -> None:
        """Without a directory there is no copy: such a server marks only the list of a new NATS."""
        self._transport = transport
        self._directory = directory
        self._clock = clock
        self._server_id = server_id
        self._wait_seconds = wait_seconds
        self._revocations = Revocations(transport, clock)
        self._copy: dict[str, Revocation] | None = None
        self._confirmed = 0
        self._since: float | None = None  # when this server first saw the list without the marker
        self._new_nats = False
        self._refused = False
        self._changed = asyncio.Event()
        self._unwatch: Callable[[], None] = lambda: None

    async def open(self) -> None:
        """Read the copy, and compare it with the bucket once."""
        if self._directory is not None:
            self._copy = await asyncio.to_thread(read, self._directory)
        await self._revocations.read()
        await self._settle()

    async def run(self) -> None:
        """Keep copy and bucket equal, until cancelled."""
        self._unwatch = self._revocations.watch(self._changed.set)
        try:
            async with self._revocations:
                while True:
                    seconds = _LOOK_SECONDS
                    try:
                        await self._settle()
                    except (LorogoError, OSError) as error:
                        log.warning("revocations are not settled", problem=str(error))
                        seconds = _AGAIN_SECONDS
                    if self._revocations.complete:
                        seconds = _AGAIN_SECONDS
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._changed.wait()
                    self._changed.clear()
        finally:
            self._unwatch()

    async def _settle(self) -> None:
        listed = self._revocations
        if not listed.read_once:
            return
        if self._copy and (count := await listed.bring_back(self._current())):
            log.warning("NATS lost revocations, brought back from this server's disk", entries=count)
        if not listed.complete:
            await self._complete()
        else:
            self._since, self._refused = None, False
        if listed.complete:
            await self._keep()

    def _current(self) -> dict[str, Revocation]:
        now = self._clock.wall_ns() / 1e9
        return {key: entry for key, entry in (self._copy or {}).items() if not entry.over(now)}

    async def _complete(self) -> None:
        listed = self._revocations
        if self._since is None:
            self._since, self._new_nats = self._clock.now(), await self._is_new()
        verdict = judge(
            has_copy=self._copy is not None,
            has_entries=listed.revoked_through > 0,
            new_nats=self._new_nats,
            waited=self._clock.now() >= self._since + self._wait_seconds,
        )
        match verdict:
            case Judgement.WAIT:
                pass
            case Judgement.COMPLETE:
                await listed.mark_complete()
                log.info("the list of revoked tokens is complete", entries=len(listed.entries))
            case Judgement.REFUSE:
                if not self._refused:
                    self._refused = True
                    log.error(
                        "NATS has documents and no list of revoked tokens, and this server has no copy:"
                        " tokens are refused until a server with a copy starts, or `lorogo token complete`"
                    )

    async def _is_new(self) -> bool:
        """Return True if NATS has no document: no status, no snapshot, no message in the WAL."""
        statuses = await self._transport.stream(subjects.STATUS_STREAM).subjects(subjects.STATUS_KEYS_ALL)
        if any(subject != subjects.EPOCH_KEY for subject in statuses):
            return False
        for name in (subjects.WAL_STREAM, subjects.SNAPSHOT_STREAM):
            if (await self._transport.stream(name).state()).last_sequence:
                return False
        return True

    async def _keep(self) -> None:
        """Write the copy, then tell up to where the disk has the list."""
        listed = self._revocations
        entries, through = listed.entries, listed.revoked_through
        if self._directory is None:
            return
        if entries != self._copy:
            await asyncio.to_thread(replace_file, self._directory, NAME, encode(entries))
            self._copy = entries
        if through != self._confirmed:
            await listed.confirm_kept(self._server_id, through)
            self._confirmed = through


def encode(entries: Mapping[str, Revocation]) -> bytes:
    """The bytes of a copy."""
    rows = {key: json.loads(revocation.encode(entry)) for key, entry in entries.items()}
    body = json.dumps({"format": _FORMAT, "entries": rows}).encode()
    return bytes(xxhash.xxh64(body).digest()) + body


def decode(data: bytes) -> dict[str, Revocation] | None:
    """The entries of a copy; None: it is damaged."""
    check, body = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if xxhash.xxh64(body).digest() != check:
        return None
    notes = json.loads(body)
    if notes["format"] != _FORMAT:
        return None
    return {key: revocation.decode(key, json.dumps(row).encode()) for key, row in notes["entries"].items()}


def read(directory: Directory) -> dict[str, Revocation] | None:
    """The copy in a directory; None: there is none that can be used."""
    try:
        data = read_file(directory, NAME)
    except FileNotFoundError:
        return None
    except (OSError, LogError) as error:
        log.warning("the copy of the revocations cannot be read", problem=str(error))
        return None
    found = decode(data)
    if found is None:
        log.error("the copy of the revocations is damaged and not used", path=directory.path)
    return found


def find(folder: Path) -> list[dict[str, Revocation]]:
    """The copies at or below a data folder."""
    storage = FileStorage()
    found = (read(storage.directory(path.parent, create=False)) for path in sorted(folder.rglob(NAME)))
    return [copy for copy in found if copy is not None]


async def restore(transport: Transport, clock: Clock, copies: Sequence[Mapping[str, Revocation]]) -> int:
    """Bring back every entry of these copies and mark the list as complete; returns how many were lost."""
    listed = Revocations(transport, clock)
    await listed.read()
    count = 0
    for copy in copies:
        count += await listed.bring_back(copy)
    if copies and not listed.complete:
        await listed.mark_complete()
    return count

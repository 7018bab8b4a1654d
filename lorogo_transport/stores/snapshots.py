"""Snapshots of documents, on the public layout of a NATS ObjectStore, replaced only by compare-and-swap.

    $O.{bucket}.C.{nuid}             the chunks of one snapshot, in order
    $O.{bucket}.M.{base64url(id)}    one JSON message: which nuid is current, its size, digest, facts

Any ObjectStore client can read them. Only this module writes, because a writer must know the outcome: the
chunks go under a new nuid, then the metadata is swapped (`Nats-Rollup: sub`, expected revision). Without a
confirmation the leader is queried: metadata with this write's id proves success. Chunks of the previous
snapshot stay for readers; `sweep` removes chunks that no metadata has named for ten minutes.
"""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from lorogo_protocol.messages.subjects import SNAPSHOT_BUCKET
from lorogo_transport.clock import Clock
from lorogo_transport.errors import OutcomeUnknown, TooLarge, TransportError, WrongLastSequence
from lorogo_transport.ports import StoredMessage, Stream
from lorogo_transport.stores.overwrite import overwrite
from lorogo_transport.telemetry.logs import get_logger
from lorogo_transport.timestamps import format_time_ns

log = get_logger(__name__)

CHUNK_BYTES = 128 * 1024
ORPHAN_SECONDS = 600.0
PUT_SECONDS = 300.0  # upload limit: well below ORPHAN_SECONDS, so that no sweep removes its chunks
_CHUNKS_IN_FLIGHT = 8
_SWAP_ATTEMPTS = 3
_READ_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8)  # between reads of a lagging replica
_THREAD_BYTES = 1024 * 1024  # larger snapshots are hashed in a thread
_HEADER_BYTES = 512  # reserved in max_payload for a chunk's headers
_WRITE_ID = "LORO_WRITE"  # on metadata: identifies the write
_DOCUMENT = "LORO_DOCUMENT"  # on chunks: the document
_DIGEST = "SHA-256="

assert PUT_SECONDS < ORPHAN_SECONDS


class SnapshotDamaged(TransportError):
    """The stored snapshot is damaged: a chunk is missing or changed, or the metadata is not JSON."""

    code = "snapshot-damaged"

    def __init__(self, document_id: str, reason: str) -> None:
        super().__init__(f"the snapshot of {document_id!r} is damaged: {reason}")
        self.document_id = document_id
        self.reason = reason


class SnapshotReplaced(TransportError):
    """A newer snapshot replaced this one during the read: read the head again."""

    code = "snapshot-replaced"
    retriable = True


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """The metadata of a document's current snapshot."""

    document_id: str
    revision: int  # the sequence of the metadata, for compare-and-swap
    nuid: str
    size: int
    chunks: int
    digest: str
    facts: Mapping[str, str] = field(default_factory=dict)
    time_ns: int = field(default=0, compare=False)  # when the metadata was stored; 0: unknown


def _no_check() -> None:
    """Allow the swap."""


class SnapshotStore:
    """The snapshots of all documents, one per document."""

    def __init__(
        self,
        stream: Stream,
        *,
        max_payload: int,
        clock: Clock,
        new_id: Callable[[], str],
        bucket: str = SNAPSHOT_BUCKET,
    ) -> None:
        self._stream = stream
        self._chunk_bytes = min(CHUNK_BYTES, max_payload - _HEADER_BYTES)
        self._clock = clock
        self._new_id = new_id
        self._bucket = bucket
        self._metadata_all = f"$O.{bucket}.M.>"
        # chunk subject -> when this process first saw it without metadata
        self._orphans: dict[str, float] = {}

    async def head(self, document_id: str) -> SnapshotHead | None:
        """Read the current snapshot's head from the leader; None if there is no snapshot."""
        stored = await self._stream.last(self._metadata_subject(document_id))
        return None if stored is None else self._parse(stored)

    async def list(self) -> AsyncIterator[SnapshotHead]:
        """Yield the head of every document, in any order. Damaged metadata is logged and skipped."""
        async for head in self.heads():
            if isinstance(head, SnapshotHead):
                yield head
            else:
                log.warning("snapshot damaged", document_id=head.document_id, reason=head.reason)

    async def heads_of(self, document_ids: Iterable[str]) -> dict[str, SnapshotHead]:
        """Return the heads of these documents; missing snapshots and damaged metadata are omitted."""
        found: dict[str, SnapshotHead] = {}
        wanted = [self._metadata_subject(document_id) for document_id in document_ids]
        async for stored in self._stream.newest_of(wanted):
            head = self._head_or_damage(stored)
            if isinstance(head, SnapshotHead):
                found[head.document_id] = head
        return found

    async def names(self) -> Sequence[str]:
        """Return every document with a snapshot, without reading metadata."""
        return [_document_id(subject) for subject in await self._stream.subjects(self._metadata_all)]

    async def heads(self) -> AsyncIterator[SnapshotHead | SnapshotDamaged]:
        """Yield the head of every document that the leader knows, in any order, or its damage."""
        wanted = set(await self._stream.subjects(self._metadata_all))
        async for stored in self._stream.newest_of(sorted(wanted)):
            wanted.discard(stored.subject)
            yield self._head_or_damage(stored)
        for subject in sorted(wanted):
            late = await self._stream.last(subject)  # missing on the replica that answered
            if late is not None:
                yield self._head_or_damage(late)

    async def put(
        self,
        document_id: str,
        data: bytes,
        facts: Mapping[str, str],
        *,
        expected_revision: int,
        check: Callable[[], None] = _no_check,
    ) -> SnapshotHead:
        """Store a snapshot that replaces revision `expected_revision` (0: none).

        `check` is called after the upload and before the swap: it raises if the swap is no longer allowed.
        Raises WrongLastSequence if another writer was first, StorageFull, OutcomeUnknown if the
        leader cannot confirm the outcome.
        """
        nuid = self._new_id()
        digest = await _digest(data)
        try:
            async with asyncio.timeout(PUT_SECONDS):
                chunks = await self._put_chunks(document_id, nuid, data)
                head = SnapshotHead(document_id, 0, nuid, len(data), chunks, digest, dict(facts))
                check()
                return await self._swap(head, expected_revision)
        except WrongLastSequence:
            await self._remove_own_chunks(document_id, nuid)  # `_swap` found the metadata of another writer
            raise
        except TimeoutError:
            raise OutcomeUnknown(f"storing the snapshot of {document_id!r} took too long") from None

    async def put_facts(
        self, current: SnapshotHead | None, document_id: str, facts: Mapping[str, str]
    ) -> SnapshotHead:
        """Replace only the facts of the head that was read, and keep its bytes. Raises as `put`."""
        if current is None:
            current = SnapshotHead(document_id, 0, self._new_id(), 0, 0, await _digest(b""))
        return await self._swap(replace(current, facts=dict(facts), time_ns=0), current.revision)

    async def get(self, head: SnapshotHead, *, bytes_max: int) -> bytes:
        """Read the bytes, checked for size and digest.

        Raises TooLarge above `bytes_max`, SnapshotReplaced if it is no longer current and already
        swept, SnapshotDamaged if it is current but incomplete.
        """
        if head.size > bytes_max:
            raise TooLarge(f"the snapshot of {head.document_id!r} has {head.size} bytes, above {bytes_max}")
        subject = self.chunk_subject(head.nuid)
        for pause in (*_READ_PAUSES, None):
            data = await self._read(subject, head.size)
            if data is not None and len(data) == head.size:
                if await _digest(data) != head.digest:
                    raise SnapshotDamaged(head.document_id, "its digest does not match")
                return data
            current = await self.head(head.document_id)
            if current is None or current.nuid != head.nuid:
                raise SnapshotReplaced(f"the snapshot of {head.document_id!r} was replaced")
            if data is None or pause is None or await self._stream.count(subject) != head.chunks:
                break  # the leader has no more either, so no replica lags
            await asyncio.sleep(pause)
        raise SnapshotDamaged(head.document_id, f"its chunks do not have {head.size} bytes")

    async def discard(self, head: SnapshotHead) -> None:
        """Overwrite and remove the bytes of a replaced snapshot at once."""
        current = await self.head(head.document_id)
        if current is not None and current.nuid != head.nuid:
            await overwrite(self._stream, self.chunk_subject(head.nuid))

    async def sweep(self, now: float, *, removals_max: int = 100) -> int:
        """Remove chunks without metadata for ten minutes by this process; return the number of snapshots.

        `now` is the process's monotonic clock: chunks carry the time of another machine, which may
        be an hour off, and a running upload elsewhere must not be removed as an orphan.
        """
        prefix = self.chunk_subject("")
        # before the metadata: an upload may finish in between
        uploaded = await self._stream.subjects(f"{prefix}>")
        named: set[str] = set()
        async for head in self.heads():
            if isinstance(head, SnapshotDamaged):
                log.warning("sweep skipped: metadata is damaged", document_id=head.document_id)
                return 0  # the damaged metadata may name any of the chunks
            named.add(self.chunk_subject(head.nuid))
        orphans = uploaded.keys() - named
        self._orphans = {subject: self._orphans.get(subject, now) for subject in sorted(orphans)}
        expired = [subject for subject, since in self._orphans.items() if now - since >= ORPHAN_SECONDS]
        removed = 0
        for subject in expired[:removals_max]:
            if await self._is_orphan(subject):
                await self._stream.purge(subject)
                removed += 1
            del self._orphans[subject]
        return removed

    async def _is_orphan(self, subject: str) -> bool:
        """Check with the leader, because the metadata may have come from a lagging replica."""
        chunk = await self._stream.last(subject)
        if chunk is None or _DOCUMENT not in chunk.headers:
            return False  # already removed, or not written by lorogo
        head = await self.head(chunk.headers[_DOCUMENT])
        return head is None or self.chunk_subject(head.nuid) != subject

    async def _put_chunks(self, document_id: str, nuid: str, data: bytes) -> int:
        """Upload the chunks in order, a few at a time; on failure remove them."""
        subject = self.chunk_subject(nuid)
        view = memoryview(data)
        size = self._chunk_bytes
        chunks = [view[start : start + size] for start in range(0, len(data), size)]
        last = 0
        try:
            for start in range(0, len(chunks), _CHUNKS_IN_FLIGHT):
                window = chunks[start : start + _CHUNKS_IN_FLIGHT]
                last = await self._put_window(subject, document_id, window, last)
        except TransportError:
            await self._discard(nuid)  # no metadata names it yet
            raise
        return len(chunks)

    async def _put_window(
        self, subject: str, document_id: str, window: Sequence[memoryview], last: int
    ) -> int:
        headers = {_DOCUMENT: document_id}
        appends = [self._stream.append(subject, bytes(chunk), headers=headers) for chunk in window]
        results = await asyncio.gather(*appends, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            if result <= last:
                raise OutcomeUnknown(f"chunks on {subject!r} were stored out of order")
            last = result
        return last

    async def _swap(self, head: SnapshotHead, expected_revision: int) -> SnapshotHead:
        """Make `head` current; WrongLastSequence only if the metadata of another writer is found."""
        write_id = self._new_id()
        subject = self._metadata_subject(head.document_id)
        body = json.dumps(self._render(head)).encode()
        headers = {"Nats-Rollup": "sub", _WRITE_ID: write_id}
        for _ in range(_SWAP_ATTEMPTS):
            try:
                revision = await self._stream.append(
                    subject, body, headers=headers, expected_last=expected_revision
                )
                return replace(head, revision=revision)
            except (WrongLastSequence, OutcomeUnknown) as error:
                try:
                    stored = await self._stream.last(subject)
                except TransportError:
                    raise OutcomeUnknown(f"the snapshot of {head.document_id!r} may be stored") from error
                if stored is not None and stored.headers.get(_WRITE_ID) == write_id:
                    return replace(head, revision=stored.sequence)
                if stored is not None and stored.sequence != expected_revision:
                    raise WrongLastSequence(f"another snapshot of {head.document_id!r} was first") from error
                if isinstance(error, WrongLastSequence):
                    raise OutcomeUnknown(f"revision {expected_revision} is gone") from error
                # unconfirmed and not stored: repeating the swap is safe, it can succeed only once
        raise OutcomeUnknown(f"the snapshot of {head.document_id!r} may be stored")

    async def _read(self, subject: str, size: int) -> bytes | None:
        """Read the chunks from one replica; None if they exceed `size`."""
        parts: list[bytes] = []
        total = 0
        async for stored in self._stream.read(subject):
            total += len(stored.data)
            if total > size:
                return None
            parts.append(stored.data)
        return b"".join(parts)

    async def _remove_own_chunks(self, document_id: str, nuid: str) -> None:
        """Remove this write's chunks, unless its unconfirmed swap succeeded and later metadata names them."""
        with suppress(TransportError):
            current = await self.head(document_id)
            if current is None or current.nuid != nuid:
                await self._discard(nuid)

    async def _discard(self, nuid: str) -> None:
        """Try to remove this write's chunks; a sweep removes the rest."""
        with suppress(TransportError):
            await self._stream.purge(self.chunk_subject(nuid))

    def chunk_subject(self, nuid: str) -> str:
        """Return the subject of a snapshot's chunks."""
        return f"$O.{self._bucket}.C.{nuid}"

    def _metadata_subject(self, document_id: str) -> str:
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(document_id.encode()).decode()}"

    def _head_or_damage(self, stored: StoredMessage) -> SnapshotHead | SnapshotDamaged:
        try:
            return self._parse(stored)
        except SnapshotDamaged as damage:
            return damage

    def _render(self, head: SnapshotHead) -> dict[str, Any]:
        return {
            "name": head.document_id,
            "bucket": self._bucket,
            "nuid": head.nuid,
            "size": head.size,
            "mtime": format_time_ns(self._clock.wall_ns()),
            "chunks": head.chunks,
            "digest": head.digest,
            "metadata": dict(head.facts),
            "options": {"max_chunk_size": self._chunk_bytes},
        }

    def _parse(self, stored: StoredMessage) -> SnapshotHead:
        document_id = _document_id(stored.subject)
        try:
            body = json.loads(stored.data)
            if body.get("deleted"):
                raise SnapshotDamaged(document_id, "another tool deleted it")
            metadata = body.get("metadata") or {}
            return SnapshotHead(
                document_id=document_id,
                revision=stored.sequence,
                nuid=_text(body["nuid"]),
                size=int(body.get("size", 0)),
                chunks=int(body.get("chunks", 0)),
                digest=str(body.get("digest", "")),
                facts={_text(name): _text(value) for name, value in metadata.items()},
                time_ns=stored.time_ns,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SnapshotDamaged(document_id, f"its metadata does not parse ({error!r})") from error


async def _digest(data: bytes) -> str:
    """Return the digest in ObjectStore format; large snapshots are hashed in a thread."""
    digest = await asyncio.to_thread(_sha256, data) if len(data) > _THREAD_BYTES else _sha256(data)
    return _DIGEST + base64.urlsafe_b64encode(digest).decode()


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _document_id(metadata_subject: str) -> str:
    token = metadata_subject.rpartition(".")[2]
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except ValueError:
        return token


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value

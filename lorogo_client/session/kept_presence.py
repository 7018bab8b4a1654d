"""Persisted presence: one value per document in the KV bucket `loro-presence`, merged by compare-and-swap.

The value is `EphemeralStore.encode_all()` of all entries, with a timeout of ten years, so that none
expires. Removed entries leave a tombstone, so that an older message does not restore them; when
the value becomes too large, tombstones are dropped. Presence may exist before its document; a deleted
document accepts none, and erasing a document erases its presence.
"""

import asyncio
import random
from collections.abc import Callable

from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import DocumentDeleted
from lorogo_client.session.presence import PresenceTooLarge
from lorogo_client.settings import ClientSettings
from lorogo_protocol import limits
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.ids import check_document_id
from lorogo_protocol.loro import ephemeral
from lorogo_protocol.messages import subjects
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import Message, StoredMessage, Subscription, Transport
from lorogo_transport.stores.catalogue import is_deleted, is_erased, snapshots
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TIMEOUT_SECONDS = 10 * 365.25 * 24 * 3600
_TRIES = 20
_KV_OPERATION = "KV-Operation"  # DEL or PURGE: the key was removed


class KeptPresence:
    """Access to the presence bucket; `client.kept_presence` returns it."""

    def __init__(self, transport: Transport, settings: ClientSettings) -> None:
        self._bus = transport.bus
        self._stream = transport.stream(subjects.PRESENCE_STREAM)
        self._snapshots = snapshots(transport)
        self._settings = settings
        self._bytes_max = limits.AWARENESS_BYTES_MAX

    async def check(self, document_id: str) -> None:
        """Raise DocumentDeleted if the document was deleted; it need not exist. TransportError."""
        head = await self._snapshots.head(check_document_id(document_id))
        if is_deleted(head):
            raise DocumentDeleted(document_id, erased=is_erased(head))

    async def load(self, document_id: str) -> bytes:
        """Return the stored value, b"" if there is none. Raises InvalidDocumentId, TransportError."""
        return _value(await self._last(document_id))

    async def merge(self, document_id: str, data: bytes) -> bytes:
        """Merge these entries and return the resulting value, which JetStream has stored.

        Raises InvalidDocumentId, InvalidUpdate, PresenceTooLarge, DocumentDeleted; OutcomeUnknown,
        WrongLastSequence (too many concurrent writers), StorageFull (the bucket is full) and
        other TransportErrors: the same call may succeed later.
        """
        if len(data) > self._bytes_max:
            raise PresenceTooLarge(f"presence has {len(data)} bytes, at most {self._bytes_max} are stored")
        ephemeral.check_presence(data)
        stored = await self._last(document_id)
        for attempt in range(_TRIES):
            await self.check(document_id)  # an erasure after this check makes the compare-and-swap fail
            before = _value(stored)
            value = self._merged(document_id, before, data)
            if value == before:
                return value
            try:
                await self._stream.append(
                    subjects.presence_key(document_id),
                    value,
                    expected_last=0 if stored is None else stored.sequence,
                    timeout=self._settings.reply_seconds,
                )
            except (WrongLastSequence, OutcomeUnknown):
                await asyncio.sleep(backoff(attempt, least=0.001, most=0.1, jitter=random.random()))
                stored = await self._last(document_id)
                if stored is not None and stored.data == value:
                    return value  # this write, or an equal one
            else:
                if stored is None:
                    await self._check_again(document_id)
                return value
        raise WrongLastSequence(f"too many concurrent writes to the presence of {document_id}; try again")

    async def follow(self, document_id: str, on_change: Callable[[bytes], None]) -> Subscription:
        """Call `on_change` with the merged value on every merge, also of this client.

        It is a hint: a write that loses its compare-and-swap is delivered too, and its writer tries again.
        """

        def on_message(message: Message) -> None:
            if message.data and _KV_OPERATION not in message.headers:
                on_change(message.data)

        check_document_id(document_id)
        subscription = await self._bus.subscribe(subjects.presence_key(document_id), on_message)
        await self._bus.barrier(self._settings.reply_seconds)
        return subscription

    async def _check_again(self, document_id: str) -> None:
        """Check again after the first write, whose compare-and-swap cannot detect an erasure."""
        try:
            await self.check(document_id)
        except DocumentDeleted as error:
            if error.erased:
                await self._stream.purge(subjects.presence_key(document_id))
            raise

    async def _last(self, document_id: str) -> StoredMessage | None:
        key = subjects.presence_key(check_document_id(document_id))
        return await self._stream.last(key, timeout=self._settings.reply_seconds)

    def _merged(self, document_id: str, before: bytes, data: bytes) -> bytes:
        """Merge both into one value. Raises PresenceTooLarge."""
        kept = ephemeral.PresenceStore(_TIMEOUT_SECONDS)
        if before:
            try:
                kept.apply(before)
            except CrdtError as error:
                log.warning("stored presence does not decode", document=document_id, problem=str(error))
                kept = ephemeral.PresenceStore(_TIMEOUT_SECONDS)
        kept.apply(data)
        value = kept.encode_all()
        if len(value) > self._bytes_max:
            kept.forget_removed()
            value = kept.encode_all()
        if len(value) > self._bytes_max:
            raise PresenceTooLarge(
                f"the presence of {document_id} would have {len(value)} bytes,"
                f" at most {self._bytes_max} are stored"
            )
        return value


def _value(stored: StoredMessage | None) -> bytes:
    return b"" if stored is None or stored.headers.get(_KV_OPERATION) else stored.data

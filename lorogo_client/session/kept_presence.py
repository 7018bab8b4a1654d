"""Presence that is kept: one value per document in the KV bucket `loro-presence`, merged by compare-and-swap.

The value is `EphemeralStore.encode_all()` of everything; its timeout is ten years, so that nothing of it
expires. Removed entries leave a mark, so that an older word about them does not bring them back; when
the value would become too large those marks go. It may come before its document; of one that was deleted
nothing is taken, and erasing a document erases it.
"""

import asyncio
import random
from collections.abc import Callable

from lorogo_client.delivery.retry_policy import backoff
from lorogo_client.errors import DocumentDeleted
from lorogo_client.inspection.overview import is_deleted, is_erased, snapshots
from lorogo_client.session.presence import PresenceTooLarge
from lorogo_client.settings import ClientSettings
from lorogo_protocol import ephemeral, limits, subjects
from lorogo_protocol.errors import CrdtError
from lorogo_protocol.ids import check_document_id
from lorogo_transport.errors import OutcomeUnknown, WrongLastSequence
from lorogo_transport.ports import Message, StoredMessage, Subscription, Transport
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_TIMEOUT_SECONDS = 10 * 365.25 * 24 * 3600
_TRIES = 20
_KV_OPERATION = "KV-Operation"  # DEL or PURGE: the key was removed


class KeptPresence:
    """The bucket, as `client.kept_presence` gives it."""

    def __init__(self, transport: Transport, settings: ClientSettings) -> None:
        self._bus = transport.bus
        self._stream = transport.stream(subjects.PRESENCE_STREAM)
        self._snapshots = snapshots(transport)
        self._settings = settings
        self._bytes_max = limits.AWARENESS_BYTES_MAX

    async def check(self, document_id: str) -> None:
        """Raises DocumentDeleted if the document was deleted; one that never was is fine. TransportError."""
        head = await self._snapshots.head(check_document_id(document_id))
        if is_deleted(head):
            raise DocumentDeleted(document_id, erased=is_erased(head))

    async def load(self, document_id: str) -> bytes:
        """Everything that is kept, b"" if nothing is. Raises InvalidDocumentId, TransportError."""
        return _value(await self._last(document_id))

    async def merge(self, document_id: str, data: bytes) -> bytes:
        """Add these entries; returns everything that is kept then, stored by JetStream.

        Raises InvalidDocumentId, InvalidUpdate, PresenceTooLarge, DocumentDeleted; OutcomeUnknown,
        WrongLastSequence (too many others wrote at the same time), StorageFull (the bucket has no room) and
        other TransportErrors: the same call may succeed later.
        """
        if len(data) > self._bytes_max:
            raise PresenceTooLarge(f"presence has {len(data)} bytes, at most {self._bytes_max} are kept")
        ephemeral.check_presence(data)
        stored = await self._last(document_id)
        for attempt in range(_TRIES):
            await self.check(document_id)  # what is erased after this fails the compare-and-swap
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
                    return value  # it is ours, or says the same
            else:
                if stored is None:
                    await self._check_again(document_id)
                return value
        raise WrongLastSequence(f"others keep writing the presence of {document_id}; try again")

    async def follow(self, document_id: str, hear: Callable[[bytes], None]) -> Subscription:
        """Call `hear` with everything that is kept, whenever anybody merges; ours, too.

        It is a hint: one that lost its compare-and-swap is heard like one that was stored, and tries again.
        """

        def on_message(message: Message) -> None:
            if message.data and _KV_OPERATION not in message.headers:
                hear(message.data)

        check_document_id(document_id)
        subscription = await self._bus.subscribe(subjects.presence_key(document_id), on_message)
        await self._bus.barrier(self._settings.reply_seconds)
        return subscription

    async def _check_again(self, document_id: str) -> None:
        """There was nothing whose erasure the compare-and-swap could have noticed."""
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
        """Both, as one value. Raises PresenceTooLarge."""
        kept = ephemeral.PresenceStore(_TIMEOUT_SECONDS)
        if before:
            try:
                kept.apply(before)
            except CrdtError as error:
                log.warning("kept presence does not decode", document=document_id, problem=str(error))
                kept = ephemeral.PresenceStore(_TIMEOUT_SECONDS)
        kept.apply(data)
        value = kept.encode_all()
        if len(value) > self._bytes_max:
            kept.forget_removed()
            value = kept.encode_all()
        if len(value) > self._bytes_max:
            raise PresenceTooLarge(
                f"{document_id} would keep {len(value)} bytes of presence, at most {self._bytes_max} may be"
            )
        return value


def _value(stored: StoredMessage | None) -> bytes:
    return b"" if stored is None or stored.headers.get(_KV_OPERATION) else stored.data

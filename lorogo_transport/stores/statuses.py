"""The status bucket: reads from the leader, compare-and-swap writes, and status messages.

Plain code on `Stream`, so JetStream and the in-memory twin behave alike. `lorogo_protocol.lease`
decides which status may be written when.
"""

from collections.abc import AsyncIterator, Iterable
from typing import TypedDict, Unpack

from lorogo_protocol import status as st
from lorogo_protocol.errors import MalformedMessage
from lorogo_protocol.lease import StatusEntry
from lorogo_protocol.messages import headers as h
from lorogo_protocol.messages import subjects
from lorogo_protocol.messages.replies import number
from lorogo_protocol.status import Down, Status
from lorogo_transport.errors import Disconnected, OutcomeUnknown, RequestTimeout, WrongLastSequence
from lorogo_transport.ports import Message, StoredMessage, Transport
from lorogo_transport.stores.republish import republished
from lorogo_transport.telemetry.logs import get_logger

log = get_logger(__name__)

_KV_OPERATION = "KV-Operation"  # DEL or PURGE: a KV tool removed the key


class StatusFacts(TypedDict, total=False):
    """The headers of a status; `StatusEntry` describes them."""

    server: str
    lease: int
    head: int
    trace: str
    failures: int
    taken_from: str
    journal_of: str


_HEADERS = {
    "server": h.SERVER,
    "lease": h.LEASE,
    "head": h.HEAD,
    "trace": h.TRACE,
    "failures": h.FAILURES,
    "taken_from": h.TAKEN_FROM,
    "journal_of": h.JOURNAL_OF,
}


class Statuses:
    """The status of every document."""

    def __init__(self, transport: Transport) -> None:
        self._stream = transport.stream(subjects.STATUS_STREAM)
        self.highest = 0  # of the revisions seen: a recreated bucket starts above it

    async def read(self, document_id: str, *, timeout: float = 5.0) -> StatusEntry | None:
        """Read the status from the bucket's leader."""
        stored = await self._stream.last(subjects.status_key(document_id), timeout=timeout)
        if stored is None:
            return None
        self.highest = max(self.highest, stored.sequence)
        return entry(stored)

    async def read_many(self, document_ids: Iterable[str]) -> dict[str, StatusEntry]:
        """Read the statuses of these documents; a replica may answer."""
        keys = [subjects.status_key(document_id) for document_id in document_ids]
        return {
            subjects.document_of(stored.subject): entry(stored)
            async for stored in self._stream.newest_of(keys)
        }

    async def names(self) -> list[str]:
        """Return every document with a status, without reading statuses."""
        keys = await self._stream.subjects(subjects.STATUS_KEYS_ALL)
        return [subjects.document_of(key) for key in keys if key != subjects.EPOCH_KEY]

    async def write(
        self,
        document_id: str,
        status: Status,
        *,
        expected_revision: int,
        timeout: float = 5.0,
        **facts: Unpack[StatusFacts],
    ) -> int:
        """Write the status by compare-and-swap and return the new revision. Raises WrongLastSequence.

        A write whose outcome is unknown is resolved by a read: if the bucket holds the written value,
        it succeeded. Raises OutcomeUnknown only if that read fails too.
        """
        value = st.encode(status)
        headers = _headers(facts)
        try:
            revision = await self._stream.append(
                subjects.status_key(document_id),
                value,
                headers=headers,
                expected_last=expected_revision,
                timeout=timeout,
            )
        except OutcomeUnknown:
            try:
                stored = await self._stream.last(subjects.status_key(document_id), timeout=timeout)
            except (RequestTimeout, Disconnected) as error:
                raise OutcomeUnknown(f"the status of {document_id} may have been written") from error
            if stored is None or stored.sequence <= expected_revision or not _same(stored, value, headers):
                raise WrongLastSequence(f"the status of {document_id} was not written") from None
            revision = stored.sequence
        self.highest = max(self.highest, revision)
        return revision

    async def write_unconfirmed(
        self, document_id: str, value: bytes, *, expected_revision: int, **facts: Unpack[StatusFacts]
    ) -> None:
        """Send a renewal, an encoded status, without waiting; its republished copy proves success."""
        await self._stream.append_unconfirmed(
            subjects.status_key(document_id), value, headers=_headers(facts), expected_last=expected_revision
        )

    async def all(self) -> AsyncIterator[tuple[str, StatusEntry]]:
        """Yield every document that has a status, in any order."""
        for document_id, found in (await self.read_many(await self.names())).items():
            yield document_id, found


def status_of(message: Message) -> StatusEntry | None:
    """Parse a message on `loro.status.{id}`; None if it is not a republished copy."""
    try:
        return entry(republished(message).stored)
    except MalformedMessage as error:
        log.warning("malformed status", subject=message.subject, problem=str(error))
        return None


def entry(stored: StoredMessage) -> StatusEntry:
    """Parse a stored value. A removed key, or a malformed value, counts as DOWN."""
    headers = stored.headers
    try:
        if headers.get(_KV_OPERATION):
            raise MalformedMessage("the key was removed")
        return StatusEntry(
            st.decode(stored.data),
            stored.sequence,
            server=headers.get(h.SERVER, ""),
            lease=number(headers, h.LEASE, 0),
            head=number(headers, h.HEAD, 0),
            trace=headers.get(h.TRACE, ""),
            failures=number(headers, h.FAILURES, 0),
            taken_from=headers.get(h.TAKEN_FROM, ""),
            journal_of=headers.get(h.JOURNAL_OF, ""),
        )
    except MalformedMessage:
        return StatusEntry(Down(stored.time_ns), stored.sequence)


def _same(stored: StoredMessage, value: bytes, headers: dict[str, str]) -> bool:
    """True if `stored` is this server's own write: two servers may write the same value."""
    return stored.data == value and all(
        stored.headers.get(name) == headers.get(name) for name in (h.SERVER, h.LEASE)
    )


def _headers(facts: StatusFacts) -> dict[str, str]:
    return {_HEADERS[name]: str(value) for name, value in facts.items() if value}

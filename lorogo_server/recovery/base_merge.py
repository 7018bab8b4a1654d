"""Content of a journalled base beside that of a document: as an update, or merged into one snapshot; pure."""

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.journal.records import BaseRecord, UpdateRecord
from lorogo_protocol.limits import UPDATE_BYTES_MAX
from lorogo_protocol.loro import crdt
from lorogo_protocol.messages.digest import digest


def as_update(document: crdt.Replica, below: crdt.Replica, base: BaseRecord) -> UpdateRecord | None:
    """Return a base as an update of the document; None: the document lacks what the base trimmed."""
    content = base.content
    if below.shallow:
        vector = document.version().vector
        if not below.can_serve_since(vector):
            return None
        content = below.updates_since(vector)
    bytes_digest = digest(content)
    name = f"base-{bytes_digest}"
    return UpdateRecord(
        base.epoch, base.sequence, name, bytes_digest, base.lease, base.generation, (), content, base.term
    )


def fits(document: crdt.Replica, update: UpdateRecord) -> bool:
    """Return True if the document's owner would accept the update."""
    return len(update.payload) <= UPDATE_BYTES_MAX and document.takes(update.payload)


def merge(document: crdt.Replica, below: crdt.Replica, base: BaseRecord) -> bytes | None:
    """Return a snapshot with the content of both; None if Loro cannot merge them.

    A snapshot that replaces the document's must include its content: messages that it covers may be purged,
    so NATS has it nowhere else.
    """
    vector = document.version().vector
    if below.includes(vector):
        return base.content
    try:
        if not isinstance(below.apply(document.updates_since(crdt.nothing_known())), crdt.Applied):
            return None
        content = below.snapshot()
        stored = crdt.Replica.from_snapshot(content, lazy=True)
    except CrdtError:
        return None
    both = stored.includes(vector) and stored.includes(base.vector)
    return content if both else None

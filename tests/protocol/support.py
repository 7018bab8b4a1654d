"""Helpers for tests of the border to Loro: replicas that write under given peer ids."""

from lorogo_protocol.loro.crdt import Applied, Replica, nothing_known


def replica(peer: int, *updates: bytes) -> Replica:
    """A replica that writes as `peer` and has these updates."""
    made = Replica()
    made.doc.peer_id = peer
    for update in updates:
        assert isinstance(made.apply(update), Applied)
    return made


def typed(writer: Replica, text: str) -> bytes:
    """Type at the front; the update that carries just that."""
    before = writer.version().vector
    writer.doc.get_text("t").insert(0, text)
    writer.doc.commit()
    return writer.updates_since(before)


def text(of: Replica) -> str:
    return of.doc.get_text("t").to_string()


def everything(of: Replica) -> bytes:
    return of.updates_since(nothing_known())

"""Presence of others: bytes of an EphemeralStore, merged within bounds."""

from collections.abc import Iterable

from loro import EphemeralStore

from lorogo_protocol.errors import CrdtError
from lorogo_protocol.loro import crdt, ephemeral
from lorogo_protocol.loro.crdt import CrdtPanic
from lorogo_protocol.loro.present import BoundedPresenceStore
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_BYTES_MAX, _ENTRIES_MAX = 400, 6
_TIMEOUT_SECONDS = 10_000.0  # nothing goes by itself while one input is tried


def _consistent(present: BoundedPresenceStore, gone: list[str]) -> None:
    with crdt.guard():
        keys = set(present._presence.store.keys())
    assert set(present._sizes) == keys
    assert present.bytes == sum(present._sizes.values())
    assert present.bytes <= _BYTES_MAX
    assert len(present._sizes) <= _ENTRIES_MAX
    assert all(isinstance(key, str) for key in gone)


def _apply(present: BoundedPresenceStore, data: bytes) -> None:
    try:
        news = present.changed_entries([data])
    except CrdtPanic:
        raise
    except CrdtError:
        news = None
    try:
        ephemeral.check_presence(data)
        changed = present.apply(data)
    except CrdtPanic:
        raise
    except CrdtError:
        return
    assert news is not None, "data that merges can be compared first"
    assert set(changed) <= set(news) | set(present._sizes)


def run(data: bytes) -> None:
    """Several messages, each behind its length."""
    source, gone = Source(data), list[str]()
    present = BoundedPresenceStore(
        _TIMEOUT_SECONDS, bytes_max=_BYTES_MAX, entries_max=_ENTRIES_MAX, gone=gone.append
    )
    while source.left:
        match source.byte() % 8:
            case 0:
                present.delete([source.text(), *present._sizes][:2])
            case 1:
                present.sweep()
            case 2:
                whole = present.encode_all()
                ephemeral.check_presence(whole)
                present.states()
            case _:
                _apply(present, source.blob())
        _consistent(present, gone)


def _message(*pairs: tuple[str, object]) -> bytes:
    store = EphemeralStore(1000)
    for key, value in pairs:
        store.set(key, value)  # type: ignore[arg-type]  # the stub's LoroValue is no runtime name
    return store.encode_all()


def seeds() -> Iterable[bytes]:
    messages = [
        _message(("a", 1)),
        _message(("b", {"name": "x", "at": [1, 2.5, None, True]})),
        _message(("c", b"bytes"), ("d", "text" * 20)),
        _message(*((str(number), number) for number in range(9))),
        b"",
    ]
    for message in messages:
        yield b"\x03" + bytes([len(message)]) + message
    yield b"".join(b"\x03" + bytes([len(one)]) + one for one in messages) + b"\x01\x02\x00\x01a"


TARGET = Target(run, seeds, (), bytes_max=1024)

"""A document's status, as any client with rights on the bucket may have written it."""

from collections.abc import Iterable

from lorogo_protocol import status
from lorogo_protocol.errors import MalformedMessage
from tests.fuzz.target import Target


def run(data: bytes) -> None:
    found = status.decode(data)
    again = status.encode(found)
    assert status.decode(again) == found
    assert found.time_ns >= 0


def seeds() -> Iterable[bytes]:
    for one in (
        status.Down(1_700_000_000_123_456_789),
        status.Starting("operation_1", 3, 1),
        status.Up("server-1", 999_999_999),
        status.Failed("trace-1", 0),
    ):
        yield status.encode(one)


TARGET = Target(run, seeds, (MalformedMessage,), bytes_max=300)

"""Header blocks of NATS: any block is read, and what we write is read as it was meant."""

from collections.abc import Iterable

from lorogo_transport.headers import DESCRIPTION, STATUS, encode_headers, own_headers, parse_headers
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_NAMES = ("LORO_LOG_ID", "Nats-Sequence", "Status", ":status", "", "a b", "x")


def _read(raw: bytes) -> None:
    parsed = parse_headers(raw)
    assert STATUS not in parsed or raw.startswith(b"NATS/1.0 " + parsed[STATUS].encode()), (
        "no header forges it"
    )
    assert DESCRIPTION not in parsed or STATUS in parsed
    own = own_headers(parsed)
    assert parse_headers(encode_headers(own)) == own, "what was read can be written again"
    assert not any(name.startswith(("Nats-", ":")) for name in own)


def _write(source: Source) -> None:
    headers = {
        source.pick(_NAMES) if source.byte() % 2 else source.text(): source.text()
        for _ in range(source.below(6))
    }
    try:
        block = encode_headers(headers)
    except ValueError:
        return  # as documented
    assert block.count(b"\r\n") == len(headers) + 2
    assert parse_headers(block) == {name: value.strip() for name, value in headers.items()}


def run(data: bytes) -> None:
    """The first byte chooses."""
    source = Source(data)
    if source.byte() % 2:
        _write(source)
    else:
        _read(source.rest())


def seeds() -> Iterable[bytes]:
    yield b"\0NATS/1.0\r\nLORO_LOG_ID: abc\r\nNats-Sequence: 12\r\n\r\n"
    yield b"\0NATS/1.0 404 No Messages\r\n\r\n"
    yield b"\0NATS/1.0 204 EOB"
    yield b"\0NATS/1Nats-Stream: loro-wal\r\nNats-Sequence: 2\r\na b: c\r\nd: e\nf\r\n\r\n"
    yield b"\0NATS/1.0 100\r\nNats-Last-Consumer: 3\r\nStatus: 204\r\n:status: 1\r\n\r\n"
    yield b"\x01\x03\x01\x00\x05value\x01\x06\x02 b\x00\x01x\x04\xc3\xa9 \t"
    yield b"\x01\x02\x01\x00\x03a\r\n\x00\x03a:b\x01b"


TARGET = Target(run, seeds, (), bytes_max=2048)

"""Texts that people and programs type: ids, versions, times, sizes, paths, addresses, headers of HTTP."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC

from lorogo_cli.doc import feed as cli_feed
from lorogo_cli.doc import paths, versions
from lorogo_cli.log import replica
from lorogo_cli.render import values
from lorogo_client.versions import parse_time, show_time, show_version
from lorogo_gateway import origins
from lorogo_gateway.documents import etags
from lorogo_gateway.documents import versions as moments
from lorogo_gateway.http import negotiation
from lorogo_log import LogPosition
from lorogo_protocol import ids
from lorogo_protocol.errors import LorogoError
from lorogo_server.values.parts import ValueProblem
from lorogo_server.values.patch import parse_pointer
from lorogo_transport import timestamps
from lorogo_transport.nats import addresses
from tests.fuzz.source import Source
from tests.fuzz.target import Target

_NOW_NS = 1_800_000_000_123_456_789
_AT = moments.parser(lambda: _NOW_NS)


def _ids(text: str) -> None:
    assert ids.is_document_id(text) == (_refusal(ids.check_document_id, text) is None)
    assert not ids.is_user_inbox(text) or ids.is_inbox(text)
    if ids.is_inbox(text):
        assert not text.startswith(("$", "loro."))
        assert not set(text) & set(" *>\r\n\t")
    if ids.is_token(text):
        assert ids.check_token(text, "it") == text


def _refusal(check: Callable[[str], object], text: str) -> LorogoError | None:
    try:
        check(text)
    except LorogoError as error:
        return error
    return None


def _at(text: str) -> None:
    found = versions.parse_at(text, now_ns=_NOW_NS, zone=UTC)
    if isinstance(found, bytes):
        assert show_version(found) == text
    else:
        assert found >= 0
        if found < 1 << 62:
            assert parse_time(show_time(found, UTC), now_ns=_NOW_NS) >= found


def _at_http(text: str) -> None:
    found = _AT(text)
    assert isinstance(found, bytes) or found >= 0


def _size(text: str) -> None:
    assert values.parse_size(text) >= 0


def _lasting(text: str) -> None:
    assert values.parse_duration(text) >= 0


def _path(text: str) -> None:
    tokens = paths.parse_path(text)
    assert paths.parse_path(paths.pointer(tokens)) == tokens
    assert paths.json_path(text).startswith("$")


def _pointer(text: str) -> None:
    try:
        tokens = parse_pointer(text)
    except ValueProblem:
        return
    assert paths.pointer(tokens) == text or not text


def _json(text: str) -> None:
    json.dumps(values.parse_json(text), allow_nan=True)


def _position(text: str) -> None:
    try:
        found = LogPosition.parse(text)
    except ValueError:
        return  # as documented
    assert LogPosition.parse(str(found)) == found


def _time_ns(text: str) -> None:
    try:
        found = timestamps.parse_time_ns(text)
    except ValueError:
        return  # as documented
    if 0 <= found < 1 << 62:
        assert timestamps.parse_time_ns(timestamps.format_time_ns(found)) == found


def _servers(text: str) -> None:
    for server in addresses.parse_servers(text):
        assert "@" not in addresses.display_address(server)


def _origin(text: str) -> None:
    try:
        made = origins.check(text)
    except ValueError:
        pass  # as documented
    else:
        assert origins.check(made) == made
    origins.origin_allowed({"origin": text, "host": text}, ())
    origins.host_allowed(text, "127.0.0.1", (), ("https://app.example.org",))
    try:
        origins.check_name(text)
    except ValueError:
        return  # as documented


def _accept(text: str) -> None:
    offered = ("application/json", "text/plain")
    assert negotiation.best(text, offered) in offered


def _content_type(text: str) -> None:
    assert negotiation.body_type(text, ("application/json",)) == "application/json"


def _etag(text: str) -> None:
    assert not etags.names_strongly(text, b"ab") or etags.names(text, b"ab")


def _since(text: str) -> None:
    cli_feed.parse_since(text, now_ns=_NOW_NS)


def _address(text: str) -> None:
    _, port = replica.parse_address(text)
    assert 0 < port < 1 << 16


PARSERS: tuple[tuple[Callable[[str], None], str], ...] = (
    (_ids, "document-1_=A"),
    (_at, "2026-11-16T10:30:00.5+01:00"),
    (_at_http, "2026-11-16T10:30:00Z"),
    (_size, "64MiB"),
    (_lasting, "1h30m"),
    (_path, "tasks.0.done"),
    (_pointer, "/a~1b/0/~0"),
    (_json, '{"a": [1, 2.5, "x", null]}'),
    (_position, "17:1:4096"),
    (_time_ns, "2026-11-16T10:30:00.123456789Z"),
    (_servers, "nats://user:secret@host:4222, tls://other"),
    (_origin, "https://app.example.org:8443"),
    (_accept, "text/*;q=0.5, application/json;q=0.9"),
    (_content_type, 'application/json; charset="utf-8"'),
    (_etag, 'W/"vYWI", "vYWI"'),
    (_since, "1h30m"),
    (_address, "[::1]:7400"),
)


def run(data: bytes) -> None:
    """The first byte chooses the parser; the rest is the text, lone surrogates too."""
    source = Source(data)
    parser, _ = source.pick(PARSERS)
    parser(source.rest().decode("utf-8", "surrogateescape"))


def seeds() -> Iterable[bytes]:
    more: dict[Callable[[str], None], tuple[str, ...]] = {
        _at: ("v" + "AQEA", "now", "-1h30m ago", "10ms", "0001-01-01", "9999-12-31T23:59:59.999999-12:00"),
        _at_http: ("vAQEA", "10m", "2026-02-31T10:30:00Z", "2026-11-16T10:30:00 01:00"),
        _path: ("/a/b~0", "$.a"),
        _since: ("now", "123", "2026-11-16T10:30"),
        _ids: ("_INBOX_abc.x.y", "_kv", "-a", "$JS.API"),
        _servers: ("[::1]:4222", "host", "nats://[", "nats://h:99999"),
        _address: ("host:0", "host:" + "9" * 20),
    }
    for number, (parser, text) in enumerate(PARSERS):
        for one in (text, *more.get(parser, ())):
            yield bytes([number]) + one.encode()


TARGET = Target(run, seeds, (LorogoError,), bytes_max=6000)

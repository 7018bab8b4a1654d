"""Pages of others are let in only by name."""

import pytest

from lorogo_gateway import origins
from lorogo_gateway.settings import GatewaySettings

APP = "https://app.example.org"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, True),  # curl, a Python program
        ({"host": "localhost:8080", "origin": "http://localhost:8080"}, True),
        ({"host": "Localhost:8080", "origin": "http://localhost:8080"}, True),
        ({"host": "localhost:8080", "origin": "http://localhost:5173"}, False),
        ({"host": "localhost:8080", "origin": "https://evil.example"}, False),
        ({"host": "localhost:8080", "origin": "null"}, False),  # a sandboxed frame, a file
        ({"host": "localhost:8080", "origin": ""}, False),
        ({"host": "localhost:8080", "origin": APP}, True),
        ({"host": "localhost:8080", "origin": "http://app.example.org"}, False),
        ({"host": "localhost:8080", "origin": "https://app.example.org.evil.example"}, False),
        ({"host": "localhost:8080", "origin": "http://["}, False),  # no address at all
        ({"host": "localhost:8080", "origin": "http://a]b"}, False),
        ({"host": "localhost:8080", "sec-fetch-site": "cross-site"}, False),
        ({"host": "localhost:8080", "sec-fetch-site": "same-origin"}, True),
        ({"host": "localhost:8080", "sec-fetch-site": "none"}, True),  # typed into the address bar
    ],
)
def test_who_is_welcome(headers: dict[str, str], expected: bool) -> None:
    assert origins.origin_allowed(headers, {APP}) is expected


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("https://App.Example.org/", "https://app.example.org"),
        ("http://localhost:5173", "http://localhost:5173"),
        ("https://app.example.org:443", "https://app.example.org"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_written_as_browsers_write_it(said: str, meant: str) -> None:
    assert origins.check(said) == meant
    assert GatewaySettings(origins=(said,)).origins == (meant,)


@pytest.mark.parametrize(
    "wrong", ["", "*", "app.example.org", "ftp://a", "https://a/b", "https://a:b", "https://", "http://["]
)
def test_what_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        GatewaySettings(origins=(wrong,))


@pytest.mark.parametrize("bound", ["127.0.0.1", "127.3.2.1", "::1", "localhost", "LocalHost"])
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", True),  # HTTP/1.0: no browser
        ("127.0.0.1:8080", True),
        ("192.168.1.5", True),  # an address, which no name server can change
        ("[::1]:8080", True),
        ("[fe80::1]", True),
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("localhost.:8080", True),
        ("app.localhost:8080", True),
        ("app.example.org", True),  # of an origin
        ("docs.example.org:8080", True),  # by name
        ("Docs.Example.Org.", True),
        ("evil.example:8080", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evillocalhost", False),
        ("127.0.0.1.evil.example", False),
        ("docs.example.org.evil.example", False),
        ("evil.example@localhost", False),
        ("[evil.example]", False),
        ("[::1", False),
        ("localhost:80:80", False),
        ("localhost:x", False),
        (":8080", False),
        ("local host", False),
    ],
)
def test_on_loopback_only_its_own_names_are_taken(bound: str, host: str, expected: bool) -> None:
    """Any DNS zone can point a name at 127.0.0.1, so the gateway accepts only configured names."""
    assert origins.host_allowed(host, bound, {"docs.example.org"}, {APP}) is expected
    if "docs" in host:
        assert not origins.host_allowed(host, bound, (), {APP})


@pytest.mark.parametrize("bound", ["0.0.0.0", "", "::", "10.0.0.7", "gateway.example.org"])
def test_elsewhere_every_name_is_taken_unless_some_are_given(bound: str) -> None:
    assert origins.host_allowed("any.example", bound, (), {APP})
    assert not origins.host_allowed("any.example", bound, {"docs.example.org"}, {APP})
    assert origins.host_allowed("docs.example.org", bound, {"docs.example.org"}, ())


def test_a_name_is_checked_when_the_settings_are_made() -> None:
    assert GatewaySettings(host_names=("Docs.Example.org.",)).host_names == ("docs.example.org",)
    for wrong in ("", "*", "a b", "http://a", "a:80", "a/b", ".", "a..b"):
        with pytest.raises(ValueError, match="is not a host name"):
            GatewaySettings(host_names=(wrong,))

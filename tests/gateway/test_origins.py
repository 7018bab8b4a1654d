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
        ({"host": "localhost:8080", "sec-fetch-site": "cross-site"}, False),
        ({"host": "localhost:8080", "sec-fetch-site": "same-origin"}, True),
        ({"host": "localhost:8080", "sec-fetch-site": "none"}, True),  # typed into the address bar
    ],
)
def test_who_is_welcome(headers: dict[str, str], expected: bool) -> None:
    assert origins.welcome(headers, {APP}) is expected


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
    "wrong", ["", "*", "app.example.org", "ftp://a", "https://a/b", "https://a:b", "https://"]
)
def test_what_is_no_origin_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        GatewaySettings(origins=(wrong,))

"""Options of `lorogo serve`: which go together, and in whose words they are refused."""

from contextlib import nullcontext
from typing import Any

import pytest
from structlog.testing import capture_logs

from lorogo_cli.config.choice import choose
from lorogo_cli.config.service_settings import server_settings
from lorogo_cli.errors import CommandError
from lorogo_cli.services.serve import _check_journal_port, _not_so
from lorogo_server import ServerSettings
from lorogo_transport.errors import StorageFull

MIB = 1 << 20
DAY = 86_400.0


def typed(*, journal_secret: str | None = None, **options: Any) -> ServerSettings:
    """The settings with these flags, by key, and nothing else."""
    flags = {key: str(value) for key, value in options.items()}
    chosen = choose("serve", typed=flags, environment={}, file=None)
    return server_settings(chosen, journal_secret=journal_secret)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"durability": "stream", "archive": "file:///x"}, "--archive contradicts --durability stream"),
        ({"durability": "stream", "journal_keep_days": 1.0}, "--journal-keep-days contradicts"),
        ({"durability": "stream", "journal_listen": "x"}, "--journal-listen contradicts"),
        ({"journal_replicas": 2}, "--journal-replicas needs --durability replicated"),
        ({"durability": "journal", "journal_replicas": 2}, "--journal-replicas needs"),
        ({"journal_keep_days": -1.0}, "--journal-keep-days must be a number above 0 (0: keep them for ever)"),
        ({"journal_keep_bytes": -1}, "--journal-keep-bytes must be a size above 0 (0: no limit)"),
        ({"history_days": -1.0}, "--history-days must be a number above 0 (0: no history), not '-1.0'"),
        ({"archive": "/backup"}, "--archive must be a URL"),
        ({"replicas": 2}, "--replicas must be 1, 3 or 5"),
        ({"kept_presence_bytes_max": 0}, "--kept-presence-bytes-max must be a size above 0 (-1: no limit)"),
        ({"durability": "best"}, "--durability must be stream, journal or replicated, not 'best'"),
        ({"durability": "replicated", "journal_listen": "x:y"}, "--journal-listen must be HOST or HOST:PORT"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words_of_the_options(
    options: dict[str, Any], words: str
) -> None:
    """The sentence names what was typed, not what the server calls it."""
    with pytest.raises(CommandError) as refused:
        typed(**options)
    assert str(refused.value).startswith(words)


def test_a_secret_in_the_environment_is_no_contradiction() -> None:
    """It may be set for all servers, whatever they do."""
    assert typed(durability="stream", journal_secret="x").durability == "stream"


@pytest.mark.parametrize(
    ("options", "segment", "seal"),
    [
        ({}, 128 * MIB, 0),
        ({"journal_keep_bytes": 64 * 1024}, MIB, 0),
        ({"journal_keep_bytes": 80 * MIB}, 10 * MIB, 0),
        ({"journal_keep_bytes": 10_000 * MIB}, 128 * MIB, 0),
        ({"journal_keep_days": 30.0}, 128 * MIB, DAY),
        ({"journal_keep_days": 1.0}, 128 * MIB, DAY / 8),
        ({"journal_keep_days": 0.0001}, 128 * MIB, 60),
        ({"journal_keep_days": 30.0, "archive": "file:///x"}, 128 * MIB, 300),
    ],
)
def test_segments_are_so_small_and_so_young_that_a_limit_can_hold(
    options: dict[str, Any], segment: int, seal: float
) -> None:
    """Only whole sealed segments expire: an eighth of the bytes each, and sealed daily at least."""
    settings = typed(**options)
    assert (settings.segment_bytes, settings.seal_seconds) == (segment, seal)


@pytest.mark.parametrize(
    ("listen", "secret", "warned"),
    [
        ("0.0.0.0", None, True),
        ("10.0.0.5:7400", None, True),
        ("0.0.0.0", "x", False),
        ("127.0.0.1", None, False),
    ],
)
def test_a_journal_without_a_secret_is_a_warning(listen: str, secret: str | None, warned: bool) -> None:
    """A reachable address without a secret is a warning on an open server, and an error on one with keys."""
    settings = typed(durability="replicated", journal_listen=listen, journal_secret=secret)
    with capture_logs() as said:
        _check_journal_port(settings, closed=False)
    assert [line["log_level"] for line in said] == ["warning"] * warned
    with pytest.raises(CommandError, match="LOROGO_JOURNAL_SECRET") if warned else nullcontext():
        _check_journal_port(settings, closed=True)


def test_a_nats_too_small_for_kept_presence_says_which_option_helps() -> None:
    """JetStream sets the limit of the bucket aside when it is made."""
    error = StorageFull("stream 'KV_loro-presence': insufficient storage resources available")
    assert "--kept-presence-bytes-max" in str(_not_so(error, ServerSettings()))
    revoked = StorageFull("stream 'KV_loro-revoked': insufficient storage resources available")
    assert "67108864 bytes for revoked tokens" in str(_not_so(revoked, ServerSettings()))
    other = StorageFull("stream 'loro-wal': insufficient storage resources available")
    assert _not_so(other, ServerSettings()) is other

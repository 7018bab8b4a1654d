"""The server's settings as the command line gives them."""

import re
from collections.abc import Mapping
from typing import Any

from lorogo_cli.errors import Problem
from lorogo_server import ServerSettings
from lorogo_server.settings import DAY_SECONDS, InvalidSettings

#: settings, by the options that say them
_OPTIONS = {
    "idle_seconds": "--idle-seconds",
    "history_seconds": "--history-days",
    "replicas": "--replicas",
    "wal_bytes_max": "--wal-bytes-max",
    "kept_presence_bytes_max": "--kept-presence-bytes-max",
    "update_bytes_max": "--update-bytes-max",
    "unfinished_bytes_max": "--update-bytes-max",
    "document_bytes_max": "--document-bytes-max",
    "documents_max": "--documents-max",
    "archive": "--archive",
    "durability": "--durability",
    "journal_partitions": "--journal-partitions",
    "journal_keep_seconds": "--journal-keep-days",
    "journal_keep_bytes": "--journal-keep-bytes",
    "journal_replicas": "--journal-replicas",
    "journal_host": "--journal-listen",
    "journal_port": "--journal-listen",
}


def server_settings(
    *,
    idle_seconds: float | None = None,
    history_days: float | None = None,
    replicas: int | None = None,
    wal_bytes_max: int | None = None,
    kept_presence_bytes_max: int | None = None,
    update_bytes_max: int | None = None,
    document_bytes_max: int | None = None,
    documents_max: int | None = None,
    compact_wal_bytes: int | None = None,
    archive: str | None = None,
    durability: str | None = None,
    journal_partitions: int | None = None,
    journal_keep_days: float | None = None,
    journal_keep_bytes: int | None = None,
    journal_replicas: int | None = None,
    journal_listen: str | None = None,
    journal_advertise: str | None = None,
    journal_secret: str | None = None,
) -> ServerSettings:
    """What was not given keeps its default. Raises Problem, in words of the options."""
    of_journal: dict[str, object] = {
        "--archive": archive,
        "--journal-partitions": journal_partitions,
        "--journal-keep-days": journal_keep_days,
        "--journal-keep-bytes": journal_keep_bytes,
    }
    of_copies: dict[str, object] = {
        "--journal-replicas": journal_replicas,
        "--journal-listen": journal_listen,
        "--journal-advertise": journal_advertise,
    }
    if durability == "stream":
        _refuse(of_journal | of_copies, "contradicts --durability stream, which keeps no journal")
    elif durability != "replicated":
        _refuse(of_copies, "is for --durability replicated: without it nobody copies the journal")
    given: dict[str, Any] = {
        "idle_seconds": idle_seconds,
        "history_seconds": None if history_days is None else history_days * DAY_SECONDS,
        "replicas": replicas,
        "wal_bytes_max": wal_bytes_max,
        "kept_presence_bytes_max": kept_presence_bytes_max,
        "update_bytes_max": update_bytes_max,
        "document_bytes_max": document_bytes_max,
        "documents_max": documents_max,
        "compact_wal_bytes": compact_wal_bytes,
        "archive": archive,
        "durability": durability,
        "journal_partitions": journal_partitions,
        "journal_keep_seconds": None if journal_keep_days is None else journal_keep_days * DAY_SECONDS,
        "journal_keep_bytes": journal_keep_bytes,
        "journal_replicas": journal_replicas,
        "journal_advertise": journal_advertise,
        "journal_secret": journal_secret,
    }
    if journal_listen is not None:
        host, _, port = journal_listen.partition(":")
        if port and not port.isdigit():
            raise Problem(f"--journal-listen takes HOST or HOST:PORT, not {journal_listen!r}")
        given |= {"journal_host": host, "journal_port": int(port or 0)}
    if update_bytes_max is not None:
        # room for as many unfinished updates as by default
        given["unfinished_bytes_max"] = 4 * update_bytes_max
    try:
        return ServerSettings(**{name: value for name, value in given.items() if value is not None})
    except InvalidSettings as error:
        raise Problem(_in_options(str(error))) from None


def _refuse(options: Mapping[str, object], why: str) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise Problem(f"{given[0]} {why}")


def _in_options(sentence: str) -> str:
    """The same sentence for whoever typed options, not settings."""
    return re.sub(r"\b[a-z]+(?:_[a-z]+)*\b", lambda found: _OPTIONS.get(found[0], found[0]), sentence)

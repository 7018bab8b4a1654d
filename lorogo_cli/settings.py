"""The server's settings as the command line gives them."""

from typing import Any

from lorogo_server import ServerSettings
from lorogo_server.settings import DAY_SECONDS, InvalidSettings


def server_settings(
    *,
    idle_seconds: float | None = None,
    history_days: float | None = None,
    replicas: int | None = None,
    wal_bytes_max: int | None = None,
    update_bytes_max: int | None = None,
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
    """What was not given keeps its default. Raises InvalidSettings."""
    given: dict[str, Any] = {
        "idle_seconds": idle_seconds,
        "history_seconds": None if history_days is None else history_days * DAY_SECONDS,
        "replicas": replicas,
        "wal_bytes_max": wal_bytes_max,
        "update_bytes_max": update_bytes_max,
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
            raise InvalidSettings(f"--journal-listen takes HOST or HOST:PORT, not {journal_listen!r}")
        given |= {"journal_host": host, "journal_port": int(port or 0)}
    if update_bytes_max is not None:
        # room for as many unfinished updates as by default
        given["unfinished_bytes_max"] = 4 * update_bytes_max
    return ServerSettings(**{name: value for name, value in given.items() if value is not None})

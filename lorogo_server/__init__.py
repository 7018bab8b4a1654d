"""The document server: one asyncio process that owns documents and answers their clients.

Open `server.py` first, then `registry.py` (the documents of this server) and `document/host.py` (one
document).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorogo_server.server import Server
    from lorogo_server.settings import InvalidSettings, ServerSettings

__all__ = ["InvalidSettings", "Server", "ServerSettings"]

_HOMES = {"InvalidSettings": "settings", "Server": "server", "ServerSettings": "settings"}


def __getattr__(name: str) -> Any:
    """Import lazily: a restore or a fold of documents needs no server."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

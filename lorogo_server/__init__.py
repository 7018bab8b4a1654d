"""Owns documents: one asyncio process takes those that clients ask for, and answers for them.

Open `server.py` first, then `owning.py` (who has which document), `host.py` (one document), `intake.py`
(what an update leads to), `lease.py` (ownership), `upkeep.py` and `compaction.py`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorogo_server.server import Server
    from lorogo_server.settings import InvalidSettings, ServerSettings

__all__ = ["InvalidSettings", "Server", "ServerSettings"]

_HOMES = {"InvalidSettings": "settings", "Server": "server", "ServerSettings": "settings"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: who restores or folds documents needs no server."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

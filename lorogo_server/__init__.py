"""Owns documents: one asyncio process takes those that clients ask for, and answers for them.

Open `server.py` first, then `host.py` (one document), `intake.py` (what an update leads to),
`lease.py` (ownership) and `compaction.py`.
"""

from lorogo_server.server import Server
from lorogo_server.settings import InvalidSettings, ServerSettings

__all__ = ["InvalidSettings", "Server", "ServerSettings"]

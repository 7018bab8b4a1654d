"""The WebSocket door: connections, their rooms, and what goes in and out of them (docs/GATEWAY.md)."""

from lorogo_gateway.sockets.door import Sockets
from lorogo_gateway.sockets.uvicorn_line import uvicorn_options

__all__ = ["Sockets", "uvicorn_options"]

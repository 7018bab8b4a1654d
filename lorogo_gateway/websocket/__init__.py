"""WebSocket connections: frames in, rooms, frames out (docs/GATEWAY.md)."""

from lorogo_gateway.transport.uvicorn_transport import uvicorn_options
from lorogo_gateway.websocket.endpoint import Sockets

__all__ = ["Sockets", "uvicorn_options"]

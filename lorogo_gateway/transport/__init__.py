"""The HTTP and WebSocket protocols of uvicorn, with bounds on connections and slow readers."""

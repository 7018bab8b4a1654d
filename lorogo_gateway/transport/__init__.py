"""uvicorn's HTTP and WebSocket protocols, with limits on connections and slow consumers."""

"""Real NATS: the connection, the bus, streams, TLS, login, and an embedded nats-server."""

"""Connections of a command to NATS: options, credentials, TLS, and the client."""

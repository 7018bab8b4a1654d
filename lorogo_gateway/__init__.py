"""The HTTP and WebSocket gateway: documents, the change feed, health, metrics and two pages.

Stateless: a client of `lorogo_client`, and as many of it as you like. docs/GATEWAY.md says what is spoken.
"""

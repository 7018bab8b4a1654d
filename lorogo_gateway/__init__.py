"""The HTTP and WebSocket gateway: documents, the change feed, health, metrics and two pages.

It is a stateless client of `lorogo_client`; run as many instances as needed. docs/GATEWAY.md describes its interfaces.
"""

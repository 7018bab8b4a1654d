"""The HTTP and WebSocket gateway: documents, the change feed, health, metrics and two pages.

It is a stateless client of `lorogo_client`, so you can run several instances. docs/GATEWAY.md is its manual.
"""

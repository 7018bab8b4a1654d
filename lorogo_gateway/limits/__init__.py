"""Limits by address and by token, over all connections of a gateway.

    TCP ─▶ Limiter.connect ─▶ head ─▶ Limits (middleware): a Visit ─▶ blocked, or identify ─▶ the app
                                              WebSocket: Visit.for_connection() ─▶ updates, joins, documents

`limiter` and `table` decide, with the time as an argument; `request_quota` and `middleware` call them.
"""

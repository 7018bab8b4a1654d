"""Limits by address and by token, over all connections of a gateway.

    TCP ─▶ Limiter.connect ─▶ head ─▶ Limits (middleware): a Visit ─▶ blocked? failed, or identify ─▶ doors
                                              WebSocket: Visit.share() ─▶ updates, joins, documents

`limiter` and `table` decide, with the time as an argument; `request_quota` and `middleware` ask them.
"""

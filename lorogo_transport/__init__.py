"""How bytes move: Protocols in `ports`, real NATS in `nats`; `lorogo_testing` has NATS in memory.

Nothing is imported here, so that an app that only needs the Protocols pays for nothing else.
"""

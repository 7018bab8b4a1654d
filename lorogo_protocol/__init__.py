"""The protocol of clients and servers: names, chunks, replies, statuses, leases, and the wrapper of Loro.

Pure: no asyncio, no NATS, no files, no clock, no randomness. docs/PROTOCOL.md is the specification.
"""

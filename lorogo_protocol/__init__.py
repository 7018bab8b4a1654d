"""What both ends agree on: names, chunks, replies, statuses, leases, and the border to Loro.

Pure: no asyncio, no NATS, no files, no clock, no chance. docs/PROTOCOL.md is its source of truth.
"""

"""The transport: Protocols in `ports`, real NATS in `nats`; `lorogo_testing` has NATS in memory.

This module imports nothing, so that an app that only needs the Protocols loads nothing else.
"""

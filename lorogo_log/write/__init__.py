"""Appends: the queue, the engine, the sealing of segments, and when an append is durable."""

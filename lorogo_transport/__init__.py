"""How bytes move: Protocols in `ports`, real NATS in `jetstream`, one process in `memory`.

Nothing is imported here, so that an app that only needs the Protocols pays for nothing else.
"""

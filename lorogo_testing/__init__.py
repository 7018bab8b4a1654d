"""NATS in memory for tests: a broker with a fault model, and an event loop on virtual time."""

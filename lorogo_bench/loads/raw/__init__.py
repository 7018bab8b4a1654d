"""Load processes that use NATS without lorogo: the raw limits of the machine."""

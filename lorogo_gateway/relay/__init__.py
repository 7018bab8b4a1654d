"""Relay of a document's bytes to many subscribers without a replica: the gateway uses it."""

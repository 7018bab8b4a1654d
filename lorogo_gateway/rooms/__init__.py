"""Rooms of a WebSocket connection: documents, presence, membership, rights, and outgoing pace."""

"""One open document: its host, load, intake of updates, and ACKs."""

"""Ownership of documents: acquisition, leases, renewals, stale owners, and the epoch of the WAL."""

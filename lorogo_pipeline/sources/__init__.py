"""Spark data sources: journals, the live stream, and snapshots."""

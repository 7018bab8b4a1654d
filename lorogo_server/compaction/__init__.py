"""Snapshots and what they replace: compaction, purges of the WAL, deletion, and WAL usage."""

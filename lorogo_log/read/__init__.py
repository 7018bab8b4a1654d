"""Reads: cursors over segments, and logs that are opened beside their writer."""

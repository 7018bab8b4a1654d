"""Segments and small files on a disk or in memory, and the threads that do the work."""

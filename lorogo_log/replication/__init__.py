"""Copies of a log in other processes: the coordinator, the replica, catch-up, and repair."""

"""Deterministic simulation: the real server and client on virtual time, in a world with faults.

`python -m tests.simulation --seeds 0-99` runs seeds; docs/FAULTS.md has the simulated faults, and how to
read a trace.
"""

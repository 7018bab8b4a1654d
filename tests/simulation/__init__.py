"""Deterministic simulation: the real server and client on virtual time, in a world that goes wrong.

`python -m tests.simulation --seeds 0-99` runs seeds; docs/FAULTS.md says what is simulated, and how to read
a trace.
"""

"""Fault injection runs: real processes, real faults, and a count of ACKed and lost edits (decisions/0017)."""

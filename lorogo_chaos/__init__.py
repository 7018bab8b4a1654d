"""The fault drill: real processes, real faults, and a count of what was ACKed and lost (decisions/0017)."""

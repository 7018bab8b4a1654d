"""The faults that a run injects: how each is done, their catalogue, and their schedule."""

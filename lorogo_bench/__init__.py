"""The benchmark suite: real processes, raw limits in the same run, and results that are checked."""

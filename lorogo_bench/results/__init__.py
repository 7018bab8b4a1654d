"""Results of a run: the report, plots, cursor moves, and the slowest reader of an update."""

"""Results of a run: the report, plots, cursor moves, and the last reader of an update."""

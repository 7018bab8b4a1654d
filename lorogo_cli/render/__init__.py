"""Input and output of values: tables, JSON, sizes, log lines, and result files."""

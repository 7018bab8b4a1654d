"""Values as users type and read them: tables, JSON, sizes, log lines, and result files."""

"""Log lines, audit lines, and OpenTelemetry spans."""

"""Messages: subjects, headers, chunks, replies, calls, reasons, and the version of the wire."""

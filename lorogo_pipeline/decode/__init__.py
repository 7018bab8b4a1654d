"""Journal records to rows: decoding, replay of updates, and changes of values."""

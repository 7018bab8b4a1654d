"""Tables of a lake: schemas, Parquet files, Delta commits, views, and deduplication."""

"""Document history as tables, on Spark through PySpark (docs/PIPELINE.md)."""

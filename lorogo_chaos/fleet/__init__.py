"""The clients of a run: processes that edit documents, and their event logs."""

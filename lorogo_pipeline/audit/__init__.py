"""The audit: compares documents in journals with the documents that servers serve."""

"""Views for operators' tools: the list of documents, health, and the trace of one update."""

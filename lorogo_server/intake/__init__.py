"""Messages of the WAL on their way into a document: received, validated, imported, decided."""

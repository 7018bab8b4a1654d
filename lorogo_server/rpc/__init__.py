"""RPC of a document's owner: endpoint, methods, and authorisation."""

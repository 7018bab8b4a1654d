"""Calls to the owner of a document: the endpoint, the methods, and the rights that each method needs."""

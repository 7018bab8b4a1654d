"""The client's token, and the connections that use it."""

"""Segments between processes: the wire format, sockets, streams, and the catalog of segments."""

"""Journal on a server's disk: append before the ACK, replicate, serve feeds, archive."""

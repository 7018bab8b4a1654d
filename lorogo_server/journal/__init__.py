"""The journal on a server's disk: appended before an ACK, replicated, read by feeds, archived."""

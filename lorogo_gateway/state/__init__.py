"""State that all connections of a gateway share: counters, fan-out, cursors, and followers."""

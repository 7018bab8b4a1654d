"""Updates between client and owner: the outbox, replies, retries, and accepted updates."""

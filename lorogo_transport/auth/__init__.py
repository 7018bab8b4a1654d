"""Access control: tokens, keys, revocations, NATS accounts, and the auth callout."""

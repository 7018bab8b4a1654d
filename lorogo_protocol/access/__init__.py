"""Access: grants, tokens, revocations, and NATS's authorisation requests."""

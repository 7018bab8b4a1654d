"""`lorogo token`: mint, show and revoke tokens, and write key files."""

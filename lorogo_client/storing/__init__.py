"""Copies of documents on an app's disk: what `connect(url, store=path)` keeps.

One `lorogo_log` holds all documents: `records` says what is in it, `replay` what it means, `restoring` makes
a replica of that. `shelf` is one document's place in it, `local` the store of a client that runs, `cleaning`
keeps it small. `lorogo_client.store` is the door for who only looks. docs/decisions/0009 says why.

A client without a store loads neither the log nor what that needs: only `shelf`, `local` and `cleaning` do.
"""

"""Copies of documents on an app's disk: what `connect(url, store=path)` keeps, and a door to look at it.

    store = Store.open(path)            # reads; also while the app is running
    for document in store.documents():
        print(document.document_id, document.unsaved)
    snapshot = store.export("minutes")  # a Loro snapshot, unsaved edits included

One `lorogo_log` holds all documents; `records` says what is in it, `replay` what it means, `local` is the
store of a client that runs. docs/decisions/0009 says why.
"""

from lorogo_client.store.door import Store
from lorogo_client.store.local import StoredDocument

__all__ = ["Store", "StoredDocument"]

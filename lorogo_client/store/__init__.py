"""The local store: copies of documents on the app's disk, made by `connect(url, store=path)`.

One `lorogo_log` holds all documents: `records` defines its records, `replay` folds them, `restored_replica`
turns the result into a replica. `document_store` is the part of one document, `local_store` the store of a
running client, and `cleaner` limits its size. `Store` reads a store without a client. docs/decisions/0009 has
the reasons.

A client without a store loads neither the log nor its dependencies: only `document_store`, `local_store`,
`cleaner` and `Store` do, so `Store` is loaded when it is first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorogo_client.store.offline_store import Store
    from lorogo_client.store.stored_document import StoredDocument

__all__ = ["Store", "StoredDocument"]

_HOMES = {"Store": "offline_store", "StoredDocument": "stored_document"}


def __getattr__(name: str) -> Any:
    """Import the module of a public name on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

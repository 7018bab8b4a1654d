"""Calls with the client's token: the document's owner verifies it again."""

from lorogo_client import Client, DocumentApi
from lorogo_gateway.auth.principal import Principal


def document_of(client: Client, document_id: str, principal: Principal) -> DocumentApi:
    """Return the document's API with this principal's token on every call."""
    return client.document(document_id, token=principal.text)

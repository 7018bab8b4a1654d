"""Calls in somebody's name: their token goes to the document's owner, who looks at it itself."""

from lorogo_client import Client, DocumentApi
from lorogo_gateway.auth.principal import Principal


def document_of(client: Client, document_id: str, principal: Principal) -> DocumentApi:
    """The document, called in the name of this principal."""
    return client.document(document_id, token=principal.text)

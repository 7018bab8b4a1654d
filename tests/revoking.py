"""The list of revocations behind an authority, which operators write and an authority only reads."""

from lorogo_transport.auth.authority import Authority
from lorogo_transport.auth.revocations import Revocations


def list_of(authority: Authority) -> Revocations:
    """The list that this authority checks."""
    assert authority._revocations is not None
    return authority._revocations

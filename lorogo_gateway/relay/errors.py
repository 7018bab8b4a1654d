"""Errors of a relay to its subscribers."""

from lorogo_client.errors import ClientError


class GivenUp(ClientError):
    """The relay gave up an update of a subscriber: it may be saved or not. Join again to find out."""

    code = "given-up"


class InvalidVersion(ClientError):
    """The bytes are not a version vector; start with an empty one."""

    code = "invalid-version"

"""A document's version as text, and the message for an unknown version.

The text is `v` and the frontiers in base64url, so that it is neither a time nor a command-line option.
"""

import base64

_SHOWN_CHARS_MAX = 60


def show_version(frontiers: bytes) -> str:
    """Return a version as text without special characters of shells."""
    return "v" + base64.urlsafe_b64encode(frontiers).rstrip(b"=").decode()


def unknown_version(text: str) -> str:
    """Return the message of commands, HTTP and clients for a version that the document does not have."""
    shown = text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."
    return f"{shown!r} is not a version of this document; its history lists them"

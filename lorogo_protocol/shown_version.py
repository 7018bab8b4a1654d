"""A document's version as text, and the sentence for a text that is none of its versions.

A version is a letter and base64url: `v` and the frontiers, so that it is neither a time nor an option.
"""

import base64

_SHOWN_CHARS_MAX = 60


def show_version(frontiers: bytes) -> str:
    """A version as text that a shell leaves alone."""
    return "v" + base64.urlsafe_b64encode(frontiers).rstrip(b"=").decode()


def unknown_version(text: str) -> str:
    """What commands, HTTP and the client answer to a version that the document does not have."""
    shown = text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."
    return f"{shown!r} is not a version of this document; its history lists them"

"""Versions as entity tags: `"v..."`, and what If-Match and If-None-Match say of them. Pure."""

import re

from lorogo_client.versions import show_version

#: what either header may hold, if it is not `*`
PATTERN = r'^(W/)?"[!#-~]*"(,[ \t]?(W/)?"[!#-~]*")*$'

_TAG = re.compile(r'(W/)?"([!#-~]*)"')


def tag(frontiers: bytes) -> str:
    """The entity tag of a version."""
    return f'"{show_version(frontiers)}"'


def names(header: str, frontiers: bytes) -> bool:
    """Whether the header names the version, weakly or not; `*` names any (If-None-Match)."""
    version = show_version(frontiers)
    return header == "*" or any(found[2] == version for found in _TAG.finditer(header))


def names_strongly(header: str, frontiers: bytes) -> bool:
    """Whether the header names exactly the version; `*` names any (If-Match)."""
    version = show_version(frontiers)
    return header == "*" or any(not found[1] and found[2] == version for found in _TAG.finditer(header))

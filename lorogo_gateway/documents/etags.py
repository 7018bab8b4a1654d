"""Versions as entity tags (`"v..."`), and matching them against If-Match and If-None-Match. Pure."""

import re

from lorogo_client.versions import show_version

#: a value of either header that is not `*`
PATTERN = r'^(W/)?"[!#-~]*"(,[ \t]?(W/)?"[!#-~]*")*$'

_TAG = re.compile(r'(W/)?"([!#-~]*)"')


def tag(frontiers: bytes) -> str:
    """Return the entity tag of a version."""
    return f'"{show_version(frontiers)}"'


def names(header: str, frontiers: bytes) -> bool:
    """Return whether the header names the version, weakly or strongly; `*` names any (If-None-Match)."""
    version = show_version(frontiers)
    return header == "*" or any(found[2] == version for found in _TAG.finditer(header))


def names_strongly(header: str, frontiers: bytes) -> bool:
    """Return whether the header names the version strongly; `*` names any (If-Match)."""
    version = show_version(frontiers)
    return header == "*" or any(not found[1] and found[2] == version for found in _TAG.finditer(header))

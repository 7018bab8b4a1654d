"""Subjects and patterns: tokens separated by dots, `*` for one token, `>` for one or more at the end."""

import re

_BROKEN = re.compile(r"[\s\x00]")


def check_subject(subject: str) -> None:
    """Raise ValueError for a subject that would corrupt the wire protocol or is never valid."""
    if subject.isprintable() and subject.isascii() and subject and " " not in subject:
        return  # the common case; the search takes twice as long
    if not subject or _BROKEN.search(subject):
        raise ValueError(f"{subject!r} is not a subject")


def matches(pattern: str, subject: str) -> bool:
    """Return whether `pattern` matches `subject`."""
    if pattern == subject:
        return True
    if "*" not in pattern and ">" not in pattern:
        return False
    wanted, tokens = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return index < len(tokens)
        if index >= len(tokens) or (token != "*" and token != tokens[index]):
            return False
    return len(wanted) == len(tokens)


def transform(pattern: str, destination: str, subject: str) -> str:
    """Replace every `{{wildcard(n)}}` in `destination` by the n-th `*` token of `subject`."""
    tokens = subject.split(".")
    wildcards = [tokens[index] for index, token in enumerate(pattern.split(".")) if token == "*"]
    return re.sub(r"\{\{wildcard\((\d+)\)\}\}", lambda found: wildcards[int(found[1]) - 1], destination)

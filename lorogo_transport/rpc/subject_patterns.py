"""Subjects and their patterns: tokens between dots, `*` for one token, `>` for one or more at the end."""

import re

_BROKEN = re.compile(r"[\s\x00]")


def check_subject(subject: str) -> None:
    """Raise ValueError for a subject that would break the wire or can never be published to."""
    if subject.isprintable() and subject.isascii() and subject and " " not in subject:
        return  # nearly all; the search takes twice as long
    if not subject or _BROKEN.search(subject):
        raise ValueError(f"{subject!r} is not a subject")


def matches(pattern: str, subject: str) -> bool:
    """Whether `pattern` covers `subject`."""
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
    """`destination` with every `{{wildcard(n)}}` replaced by the n-th `*` token of `subject`."""
    tokens = subject.split(".")
    wildcards = [tokens[index] for index, token in enumerate(pattern.split(".")) if token == "*"]
    return re.sub(r"\{\{wildcard\((\d+)\)\}\}", lambda found: wildcards[int(found[1]) - 1], destination)

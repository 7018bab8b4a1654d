"""Keystrokes: the same characters in every run, so that the expected text is known. Pure."""

BODY = "body"  # the name of the text container
_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789"


def key(number: int) -> str:
    """Return the character of a keystroke, counted from 0."""
    return _ALPHABET[number % len(_ALPHABET)]


def text_of(count: int) -> str:
    """Return the text after this many keystrokes, each appended at its end."""
    whole, rest = divmod(count, len(_ALPHABET))
    return _ALPHABET * whole + _ALPHABET[:rest]


def shares(count: int, documents: int) -> list[int]:
    """Return the number of keystrokes of each document, if documents take turns."""
    return [count // documents + (place < count % documents) for place in range(documents)]

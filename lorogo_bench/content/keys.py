"""What is typed: the same characters in every run, so that all know what text must come out. Pure."""

BODY = "body"  # the text that is typed into
_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789"


def key(number: int) -> str:
    """The character of the so many-th keystroke, from 0."""
    return _ALPHABET[number % len(_ALPHABET)]


def text_of(count: int) -> str:
    """The text after so many keystrokes, each at its end."""
    whole, rest = divmod(count, len(_ALPHABET))
    return _ALPHABET * whole + _ALPHABET[:rest]


def shares(count: int, documents: int) -> list[int]:
    """How many keystrokes each document gets, if they are typed in turn."""
    return [count // documents + (place < count % documents) for place in range(documents)]

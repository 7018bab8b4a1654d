"""Parse and check the options of the sources on NATS: `.option("nats", ...)` and so on.

Spark passes options as text, with names in lower case. An unknown name is an error: a misspelt `documents`
must not read everything.
"""

from collections.abc import Iterable, Mapping

from lorogo_pipeline.sources.errors import BadSourceOption
from lorogo_protocol.ids import check_document_id

NATS = "nats://127.0.0.1:4222"
_SEQUENCE_MAX = 2**63 - 1  # what a column of Spark holds


def check_names(options: Mapping[str, str], known: Iterable[str], source: str) -> None:
    """Raise BadSourceOption for an unknown name."""
    names = list(known)
    unknown = sorted(set(map(str.lower, options)) - {name.lower() for name in names})
    if unknown:
        raise BadSourceOption(f"{source} has no option {unknown[0]!r}; it has {', '.join(sorted(names))}")


def number(options: Mapping[str, str], name: str, *, least: int) -> int | None:
    """Return a whole number, or None if the option is missing."""
    text = options.get(name.lower())
    if text is None:
        return None
    plain = text.strip()
    if not (plain.isascii() and plain.isdigit() and least <= int(plain[:20]) <= _SEQUENCE_MAX):
        raise BadSourceOption(f"option {name} is {text!r}; it must be a whole number from {least} on")
    return int(plain)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return a boolean."""
    text = options.get(name.lower())
    if text is None:
        return default
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise BadSourceOption(f"option {name} is {text!r}; it must be true or false")


def one_of(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words; the first if the option is missing."""
    text = options.get(name.lower(), allowed[0])
    word = text.strip().lower()
    if word not in allowed:
        raise BadSourceOption(f"option {name} is {text!r}; it must be {' or '.join(allowed)}")
    return word


def documents(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids in the option, without repetition; empty: all documents. Raises InvalidDocumentId."""
    text = options.get("documents")
    if text is None:
        return ()
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise BadSourceOption("option documents is empty; leave it out to read all documents")
    return tuple(check_document_id(name) for name in names)

"""Parse and show values of the command line: JSON, sizes, durations."""

import json
import re
import shlex

from lorogo_cli.errors import CommandError, brief

_SIZE = re.compile(r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_DURATION_PART = re.compile(r"([0-9]{1,9})([smhdw])")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_json(text: str, what: str = "") -> object:
    """Parse JSON. Raises CommandError, with a hint for text without quotes."""
    try:
        value: object = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise CommandError(f"{what or brief(text)} is nested too deep") from None
    except ValueError as error:
        if what:
            where = f" (line {error.lineno}: {error.msg})" if isinstance(error, json.JSONDecodeError) else ""
            raise CommandError(f"{what} is not JSON{where}") from None
        example = shlex.quote(json.dumps(_unquoted(text)[:40], ensure_ascii=False))
        raise CommandError(f"{brief(text)} is not JSON; text needs double quotes, as in {example}") from None
    return value


def _unquoted(text: str) -> str:
    """Return the text without surrounding single quotes, which some shells pass on."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def show_json(value: object, *, pretty: bool = False) -> str:
    """Return JSON text: on one line, or with `pretty` indented."""
    if pretty:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def parse_size(text: str) -> int:
    """Parse bytes: 1048576, 1024k, 64MiB, 1G, all in powers of 1024. Raises CommandError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise CommandError(f"{brief(text)} is not a size: write bytes, or 512KiB, 64MiB, 10GiB")
    return int(match[1]) << _SHIFTS[match[2].lower()]


def parse_duration(text: str) -> int:
    """Parse a duration into seconds: 90s, 8h, 1h30m, 30d, 2w. Raises CommandError."""
    words = text.strip().lower()
    if _DURATION.fullmatch(words) is None:
        raise CommandError(f"{brief(text)} is not a duration: write 90s, 30m, 8h, 30d or 2w")
    return sum(int(count) * _SECONDS[unit] for count, unit in _DURATION_PART.findall(words))


def show_size(count: int) -> str:
    """Return a number of bytes as text, like 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def show_count(count: int, noun: str) -> str:
    """Return the count with its noun, like 2 documents."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

"""`make reference`: the reference pages of the handbook, generated from the code.

    python tools/reference.py            # writes them
    python tools/reference.py --check    # exit code 1 if they are out of date

docs/handbook/http-reference.md lists the operations that the gateway declares, wire-reference.md the names
and numbers of `lorogo_protocol`. The same code generates the same bytes.
"""

import ast
import asyncio
import enum
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import lorogo_client
from lorogo_gateway.http import openapi
from lorogo_gateway.http.operations import Operation
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol import limits
from lorogo_protocol.access import grants
from lorogo_protocol.messages import calls, headers, reasons, replies, subjects
from lorogo_testing.memory_nats import MemoryNats

ROOT = Path(__file__).resolve().parents[1]
HANDBOOK = ROOT / "docs" / "handbook"
HTTP, WIRE = HANDBOOK / "http-reference.md", HANDBOOK / "wire-reference.md"
_MADE = "<!-- Made by tools/reference.py of the code: change that, then run `make reference`. -->"
_HTTP_HEAD = f"""\
# HTTP reference

{_MADE}

Every request below `/v1`, as the gateway declares them; a running gateway serves the same as OpenAPI, at
`/v1/openapi.json`. [The gateway](../GATEWAY.md) explains them, and the WebSocket, `/healthz`, `/readyz` and
`/metrics`. Rights apply only where the gateway requires [tokens](security.md). Values are JSON unless a media
type is named.

## Problems

Errors are `application/problem+json`: `title`, `status`, `detail` for people, `code` for programs. The
statuses of an operation are listed with it.

| status | meaning |
|---|---|""".splitlines()
_WIRE_HEAD = f"""\
# Wire reference

{_MADE}

The names and numbers of the protocol, from `lorogo_protocol`. [The wire](../PROTOCOL.md) specifies their use,
and is authoritative for client authors.""".splitlines()
_REASONS_HEAD = f"""\
The codes of `{headers.REASON}`. *Retriable*: the same bytes, resent, may be accepted; clients resend
them automatically.""".splitlines()
_CALLS_HEAD = f"""\
Methods of `{subjects.call("{verb}", "{id}")}`, and the grant that each requires on the document. `fork` also
needs `write` on the target, `delete` with `purge` needs `admin`.""".splitlines()
_LIMITS_HEAD = """\
The numbers of `lorogo_protocol.limits`. They are defaults of settings; [all limits](../LIMITS.md)
lists those that an operator can change.""".splitlines()
_GROUPS = {
    "documents": "Documents",
    "feed": "The feed",
    "session": "Signing in",
    "operations": "For operators",
    "about": "About",
}


# --------------------------------------------------------------------------------------------- http


def operations() -> list[Operation]:
    """Return every operation of the gateway below /v1, in the order of its routes."""

    async def look() -> list[Operation]:
        async with lorogo_client.connect(MemoryNats().connect("reference")) as client:
            found: dict[str, Operation] = {}
            for route in Gateway(client, GatewaySettings()).app.routes:
                by_method: Mapping[str, Operation] = getattr(
                    getattr(route, "endpoint", None), "operations", {}
                )
                for one in by_method.values():
                    found.setdefault(one.name, one)
            return list(found.values())

    return asyncio.run(look())


def http_page() -> str:
    """Return the page about `/v1`."""
    known = operations()
    described = openapi.document(known, closed=True)
    lines = [
        *_HTTP_HEAD,
        *(f"| {status} | {_cell(words)} |" for status, words in _problems(described).items()),
    ]
    groups = dict.fromkeys([*_GROUPS, *(one.group for one in known)])
    for group in groups:
        mine = [one for one in known if one.group == group]
        if mine:
            lines += ["", f"## {_GROUPS.get(group, group.capitalize())}"]
        for one in mine:
            lines += _operation(one, described["paths"][one.path][one.method.lower()])
    lines += ["", "## Shapes", "", "The types of the responses and bodies above. `?`: may be absent."]
    for name, schema in described["components"]["schemas"].items():
        lines += _shape(name, schema)
    return "\n".join(lines) + "\n"


def _problems(described: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for methods in described["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if "application/problem+json" in answer.get("content", {}):
                    found[status] = answer["description"]
    return dict(sorted(found.items()))


def _operation(one: Operation, described: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"### {one.method} {one.path}", "", one.about)
    yield from ("", f"{described.get('description', 'Needs no token.')} In OpenAPI: `{one.name}`.")
    if parameters := described.get("parameters"):
        yield from ("", "| parameter | in | value | meaning |", "|---|---|---|---|")
        for parameter in parameters:
            must = "" if not parameter["required"] or parameter["in"] == "path" else ", required"
            value = _type(parameter["schema"])
            about = _cell(parameter["description"])
            yield f"| `{parameter['name']}` | {parameter['in']}{must} | {value} | {about} |"
    if body := described.get("requestBody"):
        kinds = ", ".join(f"`{kind}`: {_type(one['schema'])}" for kind, one in body["content"].items())
        yield from ("", f"Body{'' if body['required'] else ' (may be absent)'}: {kinds}.")
    yield from ("", "| response | meaning | body | headers |", "|---|---|---|---|")
    refused = []
    for status, answer in described["responses"].items():
        content = answer.get("content", {})
        if "application/problem+json" in content:
            refused.append(status)
            continue
        kinds = "<br>".join(f"`{kind}`: {_type(one['schema'])}" for kind, one in content.items())
        named = "<br>".join(
            f"`{name}`: {_cell(one['description'])}" for name, one in answer.get("headers", {}).items()
        )
        yield f"| {status} | {_cell(answer['description'])} | {kinds} | {named} |"
    yield from ("", f"Problems: {', '.join(refused)}.")


def _shape(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", f"### {name}")
    if description := schema.get("description"):
        yield from ("", description)
    properties = schema.get("properties")
    if properties is None:
        yield from ("", f"{_type(schema, inside=True)}.")
        return
    required = set(schema.get("required", ()))
    yield from ("", "| member | value | meaning |", "|---|---|---|")
    for member, one in properties.items():
        mark = "" if member in required else "?"
        yield f"| `{member}`{mark} | {_type(one)} | {_cell(one.get('description', ''))} |"


def _type(schema: Mapping[str, Any], *, inside: bool = False) -> str:
    """Describe a JSON Schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "title" in schema and not inside and "properties" in schema:
        return f"`{schema['title']}`"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[word]))
    kinds = schema.get("type", "any value")
    words = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if "array" in words and "items" in schema:
        words = words.replace("array", f"array of {_type(schema['items'])}")
    if "object" in words and isinstance(more := schema.get("additionalProperties"), Mapping) and more:
        words = words.replace("object", f"object of {_type(more)}")
    notes = [schema["format"]] if "format" in schema else []
    for name, sign in (("minimum", ">="), ("maximum", "<=")):
        if name in schema:
            notes.append(f"{sign} {schema[name]:,}")
    if "maxLength" in schema:
        notes.append(f"at most {schema['maxLength']:,} characters")
    if "maxItems" in schema:
        notes.append(f"at most {schema['maxItems']:,}")
    if "default" in schema:
        notes.append(f"default `{str(schema['default']).lower()}`")
    return _cell(f"{words} ({', '.join(notes)})" if notes else words)


# --------------------------------------------------------------------------------------------- wire


def wire_page() -> str:
    """Return the page about the names on NATS."""
    about = comments(headers)
    lines = [
        *_WIRE_HEAD,
        "",
        "## Headers",
        "",
        "| header | meaning |",
        "|---|---|",
        *(f"| `{value}` | {_cell(about[name])} |" for name, value in constants(headers, str)),
        "",
        f"`{headers.DURABILITY}` is one of {', '.join(f'`{one}`' for one in replies.DURABILITIES)}.",
        *("", "## Reasons", "", *_REASONS_HEAD, "", "| reason | retriable | meaning |", "|---|---|---|"),
        *_reasons(),
        *("", "## Subjects", "", "| subject | meaning |", "|---|---|"),
        *(f"| `{subject}` | {_cell(what)} |" for subject, what in _subjects()),
        *("", "## Streams, buckets and other names", ""),
        *("| name | constant in `lorogo_protocol.messages.subjects` |", "|---|---|"),
        *(f"| `{value}` | `{name}` |" for name, value in constants(subjects, str)),
        *("", "## Calls", "", *_CALLS_HEAD, "", "| method | requires |", "|---|---|"),
        *(f"| `{verb}` | `{grants.VERBS[verb].word}` |" for verb in calls.VERBS),
        *("", "## Limits", "", *_LIMITS_HEAD, "", "| limit | value | meaning |", "|---|---|---|"),
        *_limits(),
    ]
    return "\n".join(lines) + "\n"


def _reasons() -> Iterator[str]:
    about = comments(reasons)
    for reason in reasons.Reason:
        yield f"| `{reason.value}` | {'yes' if reason.retriable else ''} | {_cell(about[reason.name])} |"


def _subjects() -> Iterator[tuple[str, str]]:
    """Yield each subject, with its parameters in braces, and its description."""
    for name, function in vars(subjects).items():
        if inspect.isfunction(function) and name != "document_of":
            names = inspect.signature(function).parameters
            given = ["{id}" if one == "document_id" else f"{{{one}}}" for one in names]
            yield function(*given), (function.__doc__ or "").strip()


def _limits() -> Iterator[str]:
    about = comments(limits)
    for name, value in constants(limits, (int, float)):
        if name not in ("KIB", "MIB"):
            yield f"| `{name}` | {_amount(name, value)} | {_cell(about[name])} |"


def _amount(name: str, value: float) -> str:
    if "BYTES" in name.split("_"):
        for size, unit in ((limits.MIB, "MiB"), (limits.KIB, "KiB")):
            if value % size == 0:
                return f"{int(value // size):,} {unit}"
        return f"{value:,} bytes"
    if name.endswith("_SECONDS"):
        for size, unit in ((24 * 3600, "days"), (60, "min")):
            if value % size == 0 and value >= 2 * size:
                return f"{int(value // size):,} {unit}"
        return f"{value:g} s"
    return f"{value:,}"


def constants(module: ModuleType, kind: type | tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the module's own constants, in file order."""
    for name, value in vars(module).items():
        if name.isupper() and isinstance(value, kind) and not isinstance(value, enum.Enum):
            yield name, value


def comments(module: ModuleType) -> dict[str, str]:
    """Return the comment behind each assignment of a module, by the assigned name."""
    text = inspect.getsource(module)
    by_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            line = node.end_lineno or node.lineno
            if line in by_line:
                found[node.targets[0].id] = by_line[line]
    return found


def _cell(text: str) -> str:
    """Escape text for a table cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def main(arguments: list[str]) -> int:
    """Write the pages, or check that they are up to date."""
    pages = {HTTP: http_page(), WIRE: wire_page()}
    old = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    names = ", ".join(path.relative_to(ROOT).as_posix() for path in old)
    if "--check" in arguments:
        if old:
            print(f"{names}: out of date; run `make reference`")
        return 1 if old else 0
    for path in old:
        path.write_text(pages[path], encoding="utf-8")
    print(f"written: {names}" if old else "nothing has changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

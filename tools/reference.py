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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import lorogo_client
from lorogo_gateway.documents.schemas import DOCUMENT_ID
from lorogo_gateway.http import openapi
from lorogo_gateway.http.operations import Operation
from lorogo_gateway.server.app import Gateway
from lorogo_gateway.settings import GatewaySettings
from lorogo_protocol import limits
from lorogo_protocol.messages import headers, reasons, subjects
from lorogo_testing.memory_nats import MemoryNats

ROOT = Path(__file__).resolve().parents[1]
HANDBOOK = ROOT / "docs" / "handbook"
HTTP, WIRE = HANDBOOK / "http-reference.md", HANDBOOK / "wire-reference.md"
_MADE = "<!-- Made by tools/reference.py of the code: change that, then run `make reference`. -->"
_HTTP_HEAD = f"""\
# HTTP reference

{_MADE}

Every request below `/v1`, as in the OpenAPI 3.1 document of a gateway, `/v1/openapi.json`.
[The gateway](../GATEWAY.md#http) has the rules of all requests. Rights are on the document, and apply only
where the gateway requires [tokens](security.md). Values are JSON unless a media type is named. `{{id}}` is a
[document id](../PROTOCOL.md#names). `?`: may be absent.""".splitlines()
_WIRE_HEAD = f"""\
# Wire reference

{_MADE}

Codes and subjects of the protocol. [The wire](../PROTOCOL.md) specifies their use,
[rights on NATS](../NATS_RIGHTS.md) who may use them.""".splitlines()
_REASONS_HEAD = f"""\
The codes of `{headers.REASON}`. `*`: the same bytes, resent, may be accepted;
clients resend them.""".splitlines()
_LIMITS_HEAD = """\
Those that neither [the wire](../PROTOCOL.md) nor [Limits](../LIMITS.md) has.""".splitlines()
_OTHER_PAGES = (  # limits in PROTOCOL.md, LIMITS.md and SECURITY.md, whose tests compare them with the code
    *("UPDATE_", "LOOP_", "UNSTEPPED_", "TREE_", "EDITS_", "MERGED_", "RUN_", "SNAPSHOT_", "MARKS_"),
    *("DOCUMENT_ID_", "LOG_ID_", "CHUNK_", "ACCEPTED_", "AWARENESS_", "KEPT_PRESENCE_", "WINDOW_", "INGEST_"),
    *("RENEW_", "LEASE_", "STALE_", "REPLY_", "RESTART_", "REMEMBER_ACKED_SECONDS", "PRESENCE_", "REJECTED_"),
    *("HISTORY_", "RETRIES_", "REVOKED_", "TOKEN_SUBJECT_"),
    *(
        "PATCH_",
        "DOCUMENT_BYTES_MAX",
        "PRESENT_BYTES_MAX",
        "TOKEN_BYTES_MAX",
        "TOKEN_DOCUMENTS_MAX",
        "GRANTS_",
    ),
    *("UNFINISHED_", "PENDING_", "WAL_FITTED_"),
)
_DOCUMENT_ID = "document id"
_GROUPS = {
    "documents": "Documents",
    "feed": "The feed",
    "session": "Signing in",
    "operations": "For operators",
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
    problems = _Problems.of(described)
    lines = [*_HTTP_HEAD, *problems.section()]
    groups = dict.fromkeys([*_GROUPS, *(one.group for one in known)])
    groups.pop("about")  # the description itself, which the head names
    for group in groups:
        mine = [one for one in known if one.group == group]
        if mine:
            lines += ["", f"## {_GROUPS.get(group, group.capitalize())}"]
        for one in mine:
            lines += _operation(one, described["paths"][one.path][one.method.lower()], problems)
    lines += ["", "## Shapes"]
    schemas = described["components"]["schemas"]
    for name, schema in schemas.items():
        if name != "Problem":
            lines += _shape(name, schema, schemas)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class _Problems:
    """The statuses of refusals: of every request, of those that need a token, of those with a body."""

    words: Mapping[str, str]
    always: frozenset[str]
    with_token: frozenset[str]
    with_body: frozenset[str]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Self:
        all_of = [one for methods in described["paths"].values() for one in methods.values()]
        words = {
            status: answer["description"]
            for one in all_of
            for status, answer in one["responses"].items()
            if "application/problem+json" in answer.get("content", {})
        }
        always = _shared(all_of)
        token = _shared([one for one in all_of if "description" in one]) - always
        body = _shared([one for one in all_of if "requestBody" in one]) - always - token
        return cls(dict(sorted(words.items())), always, token, body)

    def others(self, described: Mapping[str, Any]) -> list[str]:
        """Return the statuses of an operation that the page's head does not list for it."""
        known = self.always
        known |= self.with_token if "description" in described else frozenset()
        known |= self.with_body if "requestBody" in described else frozenset()
        return sorted(_refused(described) - known)

    def section(self) -> Iterator[str]:
        yield from ("", "## Problems", "")
        yield "Errors are `application/problem+json`: `type`, `title`, `status`, `detail` for people, `code`"
        yield "for programs. A request lists the statuses that these lines do not have:"
        yield from ("", f"- every request: {', '.join(sorted(self.always))};")
        yield f"- those that need a token: {', '.join(sorted(self.with_token))};"
        yield f"- those with a body: {', '.join(sorted(self.with_body))}."
        yield from ("", "| status | meaning |", "|---|---|")
        for status, words in self.words.items():
            if words.rstrip(".") != HTTPStatus(int(status)).phrase:
                yield f"| {status} | {_cell(words)} |"


def _refused(described: Mapping[str, Any]) -> frozenset[str]:
    answers = described["responses"].items()
    return frozenset(
        status for status, answer in answers if "application/problem+json" in answer.get("content", {})
    )


def _shared(operations: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset.intersection(*map(_refused, operations))


def _operation(one: Operation, described: Mapping[str, Any], problems: _Problems) -> Iterator[str]:
    yield from ("", f"### {one.method} {one.path}", "", one.about)
    yield described.get("description", "Needs no token.").replace(" on the document", "")
    yield ""
    for parameter in described.get("parameters", ()):
        if parameter["in"] != "path":
            header = ", header" if parameter["in"] == "header" else ""
            must = ", required" if parameter["required"] else ""
            value = f"{_type(parameter['schema'])}{header}{must}"
            yield f"- `{parameter['name']}`: {value}. {_cell(parameter['description'])}"
    if body := described.get("requestBody"):
        kinds: dict[str, list[str]] = {}
        for kind, content in body["content"].items():
            kinds.setdefault(_type(content["schema"]), []).append(f"`{kind}`")
        words = "; ".join(f"{shape} as {' or '.join(types)}" for shape, types in kinds.items())
        yield f"- Body{'' if body['required'] else '?'}: {words.replace(' as `application/json`', '')}."
    refused = _refused(described)
    for status, answer in described["responses"].items():
        if status not in refused:
            returned = _returned(answer)
            words = "" if status == "200" and "](#" in returned else f" {_cell(answer['description'])}"
            yield f"- {status}:{words}{returned}"
    if others := problems.others(described):
        yield f"- Problems: {', '.join(others)}."


def _returned(answer: Mapping[str, Any]) -> str:
    content = [
        _type(one["schema"]) + ("" if kind == "application/json" else f" as `{kind}`")
        for kind, one in answer.get("content", {}).items()
    ]
    named = [
        f"`{name}`" + ("" if name == "ETag" else f": {one['description'].rstrip('.')}")
        for name, one in answer.get("headers", {}).items()
    ]
    words = [", or ".join(content)] if content and content != ["object"] else []
    return "".join(f" {one}." for one in [*words, *map(_cell, named)])


def _shape(name: str, schema: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", f"### {name}", "")
    if description := schema.get("description"):
        yield description
    properties = schema.get("properties")
    if properties is None:
        yield f"{_type(schema, inside=True).capitalize()}."
        return
    if description:
        yield ""
    required = set(schema.get("required", ()))
    for other, more in known.items():
        inner = more.get("properties", {})
        included = inner.items() <= properties.items() and set(more.get("required", ())) <= required
        if other != name and len(inner) > 2 and included:
            yield f"- all of [{other}](#{other.lower()})"
            properties = {member: one for member, one in properties.items() if member not in inner}
    alike: dict[str, list[str]] = {}
    for member, one in properties.items():
        about = one.get("description", "")
        named = _type(one)
        words = f"{named}. {_cell(about)}" if about and named != _DOCUMENT_ID else named
        alike.setdefault(words, []).append(f"`{member}`{'' if member in required else '?'}")
    yield from (f"- {', '.join(members)}: {words}" for words, members in alike.items())


def _type(schema: Mapping[str, Any], *, inside: bool = False) -> str:
    """Describe a JSON Schema in a few words."""
    if schema.get("pattern") == DOCUMENT_ID["pattern"]:
        return _DOCUMENT_ID
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
    if "maximum" in schema:
        notes.append(f"{schema['minimum']:,} to {schema['maximum']:,}")
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
    lines = [
        *_WIRE_HEAD,
        *("", "## Reasons", "", *_REASONS_HEAD, "", "| reason | meaning |", "|---|---|"),
        *_reasons(),
        *("", "## Subjects", "", "| subject | meaning |", "|---|---|"),
        *(f"| `{subject}` | {_cell(what)} |" for subject, what in _subjects()),
        *("", "## Limits", "", *_LIMITS_HEAD, "", "| limit | value | meaning |", "|---|---|---|"),
        *_limits(),
    ]
    return "\n".join(lines) + "\n"


def _reasons() -> Iterator[str]:
    about = comments(reasons)
    for reason in reasons.Reason:
        yield f"| `{reason.value}`{' *' if reason.retriable else ''} | {_cell(about[reason.name])} |"


def _subjects() -> Iterator[tuple[str, str]]:
    """Yield each subject with a parameter, which stands in braces, and its description."""
    for name, function in vars(subjects).items():
        if inspect.isfunction(function) and name not in (
            "document_of",
            "calls",
            "user_inbox",
            "user_inboxes",
        ):
            names = inspect.signature(function).parameters
            given = ["{id}" if one == "document_id" else f"{{{one}}}" for one in names]
            yield function(*given), (function.__doc__ or "").strip()


def _limits() -> Iterator[str]:
    about = comments(limits)
    for name, value in constants(limits, (int, float)):
        if name not in ("KIB", "MIB") and not name.startswith(_OTHER_PAGES):
            yield f"| `{name}` | {_amount(name, value)} | {_cell(about[name])} |"


def _amount(name: str, value: float) -> str:
    if "BYTES" in name.split("_"):
        for size, unit in ((limits.MIB, "MiB"), (limits.KIB, "KiB")):
            if value % size == 0:
                return f"{int(value // size):,} {unit}"
        return f"{value:,} bytes"
    if "SECONDS" in name.split("_"):
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

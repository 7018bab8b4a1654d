"""JSON Patch (RFC 6902) on a Loro document (docs/decisions/0003).

`apply_patch` edits and commits the given document. Pass a fork: after an error it holds the operations
before the failed one.

- **Roots.** The document is an object whose members are root containers. An object fills a root map,
  an array a root list, a string a root text; a number, boolean or null cannot be a root. An existing root
  is kept and edited as little as possible; a root with content must be removed before it changes its
  type. `remove` empties a root: Loro cannot delete one, so other replicas may show it empty. Of two roots
  with the same name, the patch edits the one with content.
- **Containers.** Below the roots, objects and arrays become new map and list containers, which merge;
  strings and numbers are plain values. A plain list or dict that an app has stored is edited as one
  value and stays plain.
- **Text.** A string written over a text container becomes a minimal diff. `/body/5` is a code point: `add`
  inserts a string before it, `replace` replaces it by a string, `remove` deletes it; `/body/-` is the end.
- **Counters.** A number written over a counter becomes an increment by the difference.
- **Movable lists.** `move` inside one moves, `replace` sets; both merge with concurrent moves.
- **move and copy** of a container make a new one with the same content, including marks.
- **test** compares JSON values: 1 equals 1.0, true equals neither.
- **Trees** are read as lists of nodes; only the `meta` map of a node can be edited.
- **Values** are JSON, and {"$bytes": ...} and {"$float": ...} as `lorogo_server.values.query` defines them.
"""

from loro import LoroDoc

from lorogo_protocol.errors import LorogoError
from lorogo_protocol.limits import PATCH_OPERATIONS_MAX
from lorogo_protocol.loro import crdt
from lorogo_server.sandbox.work_meter import OPERATION_UNITS, TOKEN_UNITS, Spend, unmetered
from lorogo_server.values.document_value import TooDeep
from lorogo_server.values.editor import ValueEditor
from lorogo_server.values.parts import DEPTH_MAX, KEY_CHARS_MAX, ValueProblem, lift, same
from lorogo_server.values.query import brief

POINTER_CHARS_MAX = DEPTH_MAX * (KEY_CHARS_MAX + 1)


class PatchError(LorogoError):
    """The patch is malformed or does not fit the document; discard the edited fork."""

    code = "patch-failed"

    def __init__(self, index: int | None, operation: object, problem: str) -> None:
        super().__init__(f"{_name(index, operation)}: {problem}")
        self.index = index
        self.operation = operation
        self.problem = problem


def apply_patch(doc: LoroDoc, operations: list[object], spend: Spend = unmetered) -> None:
    """Apply the operations to the document in order, and commit.

    `spend` gets the units of each operation before it writes. Raises PatchError, CrdtError, and the errors
    of `spend`.
    """
    if not isinstance(operations, list):
        raise PatchError(None, None, "it is not a list of operations")
    if len(operations) > PATCH_OPERATIONS_MAX:
        raise PatchError(None, None, f"it has {len(operations)} operations, more than {PATCH_OPERATIONS_MAX}")
    with crdt.guard():
        editor = ValueEditor(doc, spend)
        for index, operation in enumerate(operations):
            try:
                _apply(editor, operation)
            except ValueProblem as problem:
                raise PatchError(index, operation, str(problem)) from None
            except TooDeep as error:
                raise PatchError(index, operation, str(error)) from None
        doc.commit()


def parse_pointer(pointer: object) -> list[str]:
    """Return the tokens of a JSON pointer (RFC 6901). Raises ValueProblem."""
    if not isinstance(pointer, str):
        raise ValueProblem("the pointer is not a string")
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise ValueProblem(f"the pointer {brief(pointer)} does not begin with '/'")
    if len(pointer) > POINTER_CHARS_MAX or pointer.count("/") > DEPTH_MAX:
        raise ValueProblem(f"the pointer {brief(pointer)} is deeper than {DEPTH_MAX} levels")
    return [_unescaped(token) for token in pointer[1:].split("/")]


def _unescaped(token: str) -> str:
    if "~" in token.replace("~0", "").replace("~1", ""):
        raise ValueProblem(f"in {brief(token)} a '~' is followed by neither 0 nor 1")
    return token.replace("~1", "/").replace("~0", "~")


def _apply(editor: ValueEditor, operation: object) -> None:
    if not isinstance(operation, dict):
        raise ValueProblem("it is not an object")
    for member in ("op", "path"):
        if member not in operation:
            raise ValueProblem(f"{member!r} is missing")
    editor.spend(OPERATION_UNITS)
    path = _path(editor, operation["path"])
    match operation:
        case {"op": "remove"}:
            editor.remove(path)
        case {"op": ("add" | "replace" | "test") as op, "value": value}:
            content = lift(value, len(path), editor.spend)
            match op:
                case "add":
                    editor.add(path, content)
                case "replace":
                    editor.replace(path, content)
                case _:
                    _test(editor, path, value)
        case {"op": ("move" | "copy") as op, "from": pointer}:
            source = _path(editor, pointer)
            if op == "move":
                editor.move(source, path)
            else:
                editor.add(path, editor.lift_out(source, len(path)))
        case {"op": "add" | "replace" | "test"}:
            raise ValueProblem("'value' is missing")
        case {"op": "move" | "copy"}:
            raise ValueProblem("'from' is missing")
        case _:
            raise ValueProblem(f"{brief(operation['op'])} is not an operation")


def _path(editor: ValueEditor, pointer: object) -> list[str]:
    tokens = parse_pointer(pointer)
    editor.spend(sum(TOKEN_UNITS + len(token) for token in tokens))
    return tokens


def _test(editor: ValueEditor, path: list[str], expected: object) -> None:
    found = editor.read(path)
    if not same(found, expected):
        raise ValueProblem(f"the value is {brief(found)}, not {brief(expected)}")


def _name(index: int | None, operation: object) -> str:
    if index is None:
        return "the patch"
    facts = operation if isinstance(operation, dict) else {}
    op, path = facts.get("op"), facts.get("path")
    shown = f" ({op if op in _OPERATIONS else '?'} {brief(path)})" if isinstance(path, str) else ""
    return f"operation {index}{shown}"


_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")

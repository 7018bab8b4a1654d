"""Show remote edits: Loro's events as JSON for scripts, and as one line for people."""

from typing import Any

from loro import (
    ContainerDiff,
    Diff,
    DiffEvent,
    Index,
    ListDiffItem,
    TextDelta,
    TreeExternalDiff,
    ValueOrContainer,
)

from lorogo_cli.render.values import show_count, show_json

_CHARS_MAX = 60


def facts(event: DiffEvent) -> list[dict[str, Any]]:
    """Return one map per changed container: path, kind and diff."""
    return [
        {"path": _path(part), "kind": _kind(part.diff), "diff": _diff(part.diff)} for part in event.events
    ]


def lines(parts: list[dict[str, Any]]) -> list[str]:
    """Return one line per changed container, for people."""
    return [f"{'.'.join(map(str, part['path']))}: {_words(part)}" for part in parts]


def _path(part: ContainerDiff) -> list[str | int]:
    found: list[str | int] = []
    for item in part.path:
        match item.index:
            case Index.Key():
                found.append(item.index.key)
            case Index.Seq():
                found.append(item.index.index)
            case Index.Node():
                found.append(_node(item.index.target))
    return found


def _kind(diff: Diff) -> str:
    kinds = {
        Diff.Text: "text",
        Diff.Map: "map",
        Diff.List: "list",
        Diff.Tree: "tree",
        Diff.Counter: "counter",
    }
    return kinds.get(type(diff), "unknown")


def _diff(diff: Diff) -> object:
    match diff:
        case Diff.Text():
            return [_text_step(step) for step in diff.diff]
        case Diff.List():
            return [_list_step(step) for step in diff.diff]
        case Diff.Map():
            return {key: None if value is None else _value(value) for key, value in diff.diff.updated.items()}
        case Diff.Tree():
            return [{"node": _node(item.target), **_tree_step(item.action)} for item in diff.diff.diff]
        case Diff.Counter():
            return diff.diff
        case _:
            return None


def _text_step(step: TextDelta) -> dict[str, Any]:
    match step:
        case TextDelta.Insert():
            marks = {"attributes": dict(step.attributes)} if step.attributes else {}
            return {"insert": step.insert, **marks}
        case TextDelta.Delete():
            return {"delete": step.delete}
        case TextDelta.Retain():
            marks = {"attributes": dict(step.attributes)} if step.attributes else {}
            return {"retain": step.retain, **marks}
        case _:
            return {}


def _list_step(step: ListDiffItem) -> dict[str, Any]:
    match step:
        case ListDiffItem.Insert():
            return {"insert": [_value(item) for item in step.insert]}
        case ListDiffItem.Delete():
            return {"delete": step.delete}
        case ListDiffItem.Retain():
            return {"retain": step.retain}
        case _:
            return {}


def _tree_step(action: TreeExternalDiff) -> dict[str, Any]:
    match action:
        case TreeExternalDiff.Create():
            return {"create": action.index, "parent": action.parent and _node(action.parent)}
        case TreeExternalDiff.Move():
            return {"move": action.index, "parent": action.parent and _node(action.parent)}
        case _:
            return {"delete": True}


def _node(target: Any) -> str:
    return f"{target.counter}@{target.peer}"


def _value(value: ValueOrContainer) -> object:
    """Return a plain value, or the content of a container."""
    match value:
        case ValueOrContainer.Container():
            container: Any = value.container
            for method in ("get_deep_value", "to_string", "get_value_with_meta"):
                if hasattr(container, method):
                    return getattr(container, method)()
            return getattr(container, "value", None)
        case ValueOrContainer.Value():
            return value.value
        case _:
            return None


def _words(part: dict[str, Any]) -> str:
    diff = part["diff"]
    match part["kind"]:
        case "text" | "list":
            return ", ".join(_steps(diff)) or "marked"
        case "map":
            return ", ".join(
                f"{key} removed" if value is None else f"{key} = {_short(value)}"
                for key, value in diff.items()
            )
        case "counter":
            return f"{diff:+g}"
        case "tree":
            return f"{show_count(len(diff), 'node')} created, moved or deleted"
        case _:
            return "changed"


def _steps(diff: list[dict[str, Any]]) -> list[str]:
    words, at = [], 0
    for step in diff:
        match step:
            case {"insert": new}:
                words.append(f"+{_short(new)} at {at}")
                at += len(new)
            case {"delete": count}:
                words.append(f"-{count} at {at}")
            case {"retain": count}:
                at += count
    return words


def _short(value: object) -> str:
    text = show_json(value)
    return text if len(text) <= _CHARS_MAX else text[:_CHARS_MAX] + "..."

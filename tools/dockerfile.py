"""A Dockerfile, read: its stages and their steps. As much of the language as ours uses, no more.

    stages = parse(Path("Dockerfile").read_text())
    stages["server"].steps      # [Step("COPY", ["run"], ...), ...]

An instruction, option or form that is not known here is an error, never passed over: what is built without an
engine must be what an engine would build.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: instruction -> the options that it may have
KNOWN: Mapping[str, frozenset[str]] = {
    "ARG": frozenset(),
    "CMD": frozenset(),
    "COPY": frozenset({"from", "chown"}),
    "ENTRYPOINT": frozenset(),
    "ENV": frozenset(),
    "EXPOSE": frozenset(),
    "FROM": frozenset(),
    "HEALTHCHECK": frozenset({"interval", "timeout", "start-period", "start-interval", "retries"}),
    "LABEL": frozenset(),
    "RUN": frozenset(),
    "USER": frozenset(),
    "VOLUME": frozenset(),
    "WORKDIR": frozenset(),
}
_OPTION = re.compile(r"--([a-z-]+)=(\S+)\s+")
_PAIR = re.compile(r"""([\w.]+)=("(?:[^"\\]|\\.)*"|\S+)(?:\s+|$)""")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class UnsupportedInstruction(ValueError):
    """The Dockerfile says something that is not known here."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its word, its options, and the rest of it."""

    word: str
    rest: str
    options: Mapping[str, str] = field(default_factory=dict)
    line: int = 0

    def strings(self) -> list[str]:
        """The exec form: a list of strings. Raises NotUnderstood."""
        try:
            found = json.loads(self.rest)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise UnsupportedInstruction(f"line {self.line}: {self.word} {self.rest}: not the exec form")
        return found

    def pairs(self) -> dict[str, str]:
        """NAME=value NAME="value" ... Raises NotUnderstood."""
        found: dict[str, str] = {}
        end = 0
        while end < len(self.rest):
            pair = _PAIR.match(self.rest, end)
            if pair is None:
                raise UnsupportedInstruction(f"line {self.line}: {self.word} {self.rest}: not NAME=value")
            value = pair[2]
            found[pair[1]] = json.loads(value) if value.startswith('"') else value
            end = pair.end()
        return found


@dataclass(slots=True)
class Stage:
    """One image on the way: what it begins with, and its steps."""

    name: str
    parent: str  # another stage, or an image
    steps: list[Instruction] = field(default_factory=list)


def parse(text: str, **arguments: str) -> dict[str, Stage]:
    """The stages by name, in their order; `arguments` are those of --build-arg. Raises NotUnderstood."""
    known: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for step in _steps(text):
        match step.word:
            case "ARG" if not stages:
                name, _, default = step.rest.partition("=")
                known[name] = arguments.get(name, default)
            case "FROM":
                words = expand(step.rest, known).split()
                if len(words) != 3 or words[1].upper() != "AS":
                    raise UnsupportedInstruction(
                        f"line {step.line}: FROM {step.rest}: not FROM IMAGE AS NAME"
                    )
                stages[words[2]] = Stage(words[2], words[0])
            case _ if not stages:
                raise UnsupportedInstruction(f"line {step.line}: {step.word} before the first FROM")
            case "ARG":
                raise UnsupportedInstruction(f"line {step.line}: ARG inside a stage")
            case _:
                list(stages.values())[-1].steps.append(step)
    return stages


def lineage(stages: Mapping[str, Stage], name: str) -> list[Stage]:
    """The stage with those that it begins with, the first of them first."""
    found = [stages[name]]
    while found[0].parent in stages:
        found.insert(0, stages[found[0].parent])
    return found


def needed(stages: Mapping[str, Stage], *names: str) -> list[str]:
    """The stages that these are made of, in the order of the file, these included."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        stage = stages[todo.pop()]
        if stage.name not in found:
            found.add(stage.name)
            sources = [stage.parent, *(step.options.get("from", "") for step in stage.steps)]
            todo += [source for source in sources if source in stages]
    return [name for name in stages if name in found]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """With the variables' values. Raises NotUnderstood for one that has none."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in variables:
            raise UnsupportedInstruction(f"${name} has no value")
        return variables[name]

    return _VARIABLE.sub(value, text)


def _steps(text: str) -> Iterator[Instruction]:
    for number, line in _lines(text):
        word, _, rest = line.partition(" ")
        word, rest = word.upper(), rest.strip()
        if word not in KNOWN:
            raise UnsupportedInstruction(f"line {number}: {word} is not known here")
        options: dict[str, str] = {}
        while (option := _OPTION.match(rest)) is not None and word != "RUN":
            options[option[1]] = option[2]
            rest = rest[option.end() :]
        if unknown := options.keys() - KNOWN[word]:
            raise UnsupportedInstruction(f"line {number}: {word} --{min(unknown)} is not known here")
        if rest.startswith("--"):
            raise UnsupportedInstruction(f"line {number}: {word} {rest}: an option that is not known here")
        yield Instruction(word, rest, options, number)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Whole instructions with the number of their first line; comments and empty lines are left out."""
    first, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        first = first if parts else number
        parts.append(bare.removesuffix("\\").rstrip())
        if not bare.endswith("\\"):
            yield first, " ".join(parts)
            parts = []
    if parts:
        raise UnsupportedInstruction(f"line {first}: it does not end")

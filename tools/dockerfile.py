"""A parser for the subset of the Dockerfile language that our Dockerfile uses.

    stages = parse(Path("Dockerfile").read_text())
    stages["server"].steps      # [Step("COPY", ["run"], ...), ...]

An unknown instruction, option or form is an error, so that a build without an engine equals an engine's.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: the options that each instruction may have
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
    """The Dockerfile has an instruction, option or form that is not supported here."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name, its options, and its arguments."""

    word: str
    rest: str
    options: Mapping[str, str] = field(default_factory=dict)
    line: int = 0

    def strings(self) -> list[str]:
        """Parse the exec form: a list of strings. Raises NotUnderstood."""
        try:
            found = json.loads(self.rest)
        except ValueError:
            found = None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise UnsupportedInstruction(f"line {self.line}: {self.word} {self.rest}: not the exec form")
        return found

    def pairs(self) -> dict[str, str]:
        """Parse NAME=value NAME="value" ... Raises NotUnderstood."""
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
    """One stage: its parent and its steps."""

    name: str
    parent: str  # another stage, or an image
    steps: list[Instruction] = field(default_factory=list)


def parse(text: str, **arguments: str) -> dict[str, Stage]:
    """Return the stages by name, in order; `arguments` are those of --build-arg. Raises NotUnderstood."""
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
    """Return the stage with its parent stages, the first of them first."""
    found = [stages[name]]
    while found[0].parent in stages:
        found.insert(0, stages[found[0].parent])
    return found


def needed(stages: Mapping[str, Stage], *names: str) -> list[str]:
    """Return the stages needed to build these, in file order, these included."""
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
    """Substitute variables. Raises NotUnderstood for one without a value."""

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
    """Yield whole instructions with the number of their first line, without comments and empty lines."""
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
        raise UnsupportedInstruction(f"line {first}: the instruction has no end")

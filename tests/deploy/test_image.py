"""Building without an engine: instructions do what they do there, and what is not known is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from lorogo_transport.nats.embedded import find_nats_server
from tests.deploy.support import ROOT
from tools import dockerfile, image_trial
from tools.dockerfile import Instruction, UnsupportedInstruction
from tools.image import Builder, Image, described, mapped

TOY = r"""
# a comment
ARG PYTHON_IMAGE=python:3.11.14-slim
FROM ${PYTHON_IMAGE} AS first
ENV GREETING="good day" PLACE=/opt/there
WORKDIR /src
COPY one.txt two.txt ./
RUN python -c 'import os, pathlib; pathlib.Path("/src/greeting").write_text(os.environ["GREETING"])' \
 && mkdir -p /opt/there/bin \
 && printf '#!/bin/sh\necho /opt/there "$PLACE" "$@"\n' > /opt/there/bin/tell \
 && chmod +x /opt/there/bin/tell
WORKDIR inner
RUN cat ../one.txt > copied && pwd > where

FROM first AS unused
RUN false

FROM first AS second
COPY folder /data
COPY folder/deep.txt /data/renamed.txt
RUN cat /src/inner/copied >> /data/deep.txt

FROM python:3.11.14-slim AS last
COPY --from=second --chown=10001:10001 /data/ /
COPY --from=first /opt/there /opt/there
ENV PATH=/opt/there/bin:$PATH
USER 10001:10001
VOLUME /keep
EXPOSE 80
ENTRYPOINT ["/opt/there/bin/tell", "--flag=/keep/x"]
CMD ["/keep"]
HEALTHCHECK --interval=3s CMD ["/opt/there/bin/tell"]
"""


def context(folder: Path) -> Path:
    (folder / "folder").mkdir(parents=True)
    for name in ("one.txt", "two.txt", "folder/deep.txt", "folder/secret"):
        (folder / name).write_text(name)
    (folder / ".dockerignore").write_text("**/secret\n")
    return folder


@pytest.fixture
def built(tmp_path: Path) -> Builder:
    builder = Builder(dockerfile.parse(TOY), context(tmp_path / "context"), tmp_path / "out", lambda _: None)
    builder.build("last")
    return builder


def test_steps_are_done_in_the_stage_s_folder(built: Builder) -> None:
    """The steps are COPY, RUN, ENV and WORKDIR; a stage that no later stage needs is not built."""
    assert list(built.images) == ["first", "second", "last"]
    first = built.images["first"].root
    assert (first / "src/greeting").read_text() == "good day"
    assert (first / "src/two.txt").read_text() == "two.txt"
    assert (first / "src/inner/where").read_text().strip() == str(first / "src/inner")
    second = built.images["second"].root
    assert (second / "src/greeting").read_text() == "good day"
    assert sorted(path.name for path in (second / "data").iterdir()) == ["deep.txt", "renamed.txt"]
    assert (second / "data/deep.txt").read_text() == "folder/deep.txtone.txt"
    assert not (first / "data").exists()


def test_what_came_out_stands_alone(built: Builder) -> None:
    """The image starts as its instructions define, without the folders of the other stages."""
    built.keep("last")
    (image,) = built.images.values()
    root = image.root
    assert list(root.parent.iterdir()) == [root]
    assert (root / "deep.txt").exists()
    assert (image.user, image.volumes, image.ports) == ("10001:10001", ["/keep"], ["80"])
    settings = image.settings()
    assert settings["PATH"].startswith(f"{root}/opt/there/bin:{root}/usr/local/bin:")
    assert settings["PATH"].endswith(":/usr/sbin:/usr/bin:/sbin:/bin")
    done = subprocess.run(image.words(), env=settings, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{root}/opt/there  --flag={root}/keep/x {root}/keep\n"
    assert image.checks() == [f"{root}/opt/there/bin/tell"]
    assert image.words("other") == [f"{root}/opt/there/bin/tell", f"--flag={root}/keep/x", "other"]


def test_the_description_is_what_a_build_finds(built: Builder) -> None:
    """The description gives the start command of a target without building it."""
    assert described(dockerfile.parse(TOY), "last", built.images["last"].root) == built.images["last"]


def test_a_step_that_fails_ends_the_build(tmp_path: Path) -> None:
    stages = dockerfile.parse(TOY)
    builder = Builder(stages, context(tmp_path / "context"), tmp_path / "out", lambda _: None)
    with pytest.raises(subprocess.CalledProcessError):
        builder.build("unused")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FROM python:3 AS a\nADD x y", "ADD is not known"),
        ("FROM python:3 AS a\nONBUILD RUN x", "ONBUILD is not known"),
        ("FROM python:3 AS a\nRUN --mount=type=cache,target=/x y", "an option that is not known"),
        ("FROM python:3 AS a\nCOPY --link x y", "an option that is not known"),
        ("FROM python:3 AS a\nCOPY --chmod=1 x y", "--chmod is not known"),
        ("FROM python:3", "not FROM IMAGE AS NAME"),
        ("FROM ${X} AS a", "X has no value"),
        ("RUN x", "before the first FROM"),
        ("FROM python:3 AS a\nARG X=1", "ARG inside a stage"),
        ("FROM python:3 AS a\nRUN x \\", "has no end"),
    ],
)
def test_what_is_not_known_is_refused(text: str, words: str) -> None:
    """Rather than passed over: an engine would do something that this does not."""
    with pytest.raises(UnsupportedInstruction, match=words):
        dockerfile.parse(text)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("COPY nothing ./", "it does not exist"),
        ("COPY folder/secret ./", "it does not exist, or .dockerignore excludes it"),
        ('ENTRYPOINT lorogo "serve"', "not the exec form"),
        ("HEALTHCHECK CMD lorogo health", "not the exec form"),
        ("ENV A 1", "not NAME=value"),
        ("ENV A=$MISSING", "MISSING has no value"),
    ],
)
def test_an_unsupported_step_is_an_error(steps: str, words: str, tmp_path: Path) -> None:
    stages = dockerfile.parse(f"FROM python:3.11.14 AS a\n{steps}")
    builder = Builder(stages, context(tmp_path / "context"), tmp_path / "out", lambda _: None)
    with pytest.raises(UnsupportedInstruction, match=words):
        builder.build("a")


def test_bases_and_folders_that_will_not_do(tmp_path: Path) -> None:
    there = context(tmp_path / "context")
    with pytest.raises(UnsupportedInstruction, match="cannot stand in"):
        Builder(dockerfile.parse("FROM scratch AS a"), there, tmp_path / "out", lambda _: None).build("a")
    with pytest.raises(UnsupportedInstruction, match="no target b"):
        Builder(dockerfile.parse("FROM python:3 AS a"), there, tmp_path / "out", lambda _: None).build("b")
    with pytest.raises(UnsupportedInstruction, match="without spaces"):
        Builder({}, there, tmp_path / "a b", lambda _: None)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("/opt/a/bin/x -w /wheels .", "R/opt/a/bin/x -w R/wheels ."),
        ("/wheels/*.whl", "R/wheels/*.whl"),
        ("sed -n 's/^a/b/p' x > /src/y", "sed -n 's/^a/b/p' x > R/src/y"),
        ("A=/src/x B='/data'", "A=R/src/x B='R/data'"),
        ("a:/tmp:/usr/sbin/nologin", "a:R/tmp:/usr/sbin/nologin"),
        ("/usr/local/bin:/usr/bin:/bin", "R/usr/local/bin:/usr/bin:/bin"),
        ("/bin/sh -c x > /dev/null", "/bin/sh -c x > /dev/null"),
        ("/binary /library", "R/binary R/library"),
        ("http://127.0.0.1:8080/x nats://h:1", "http://127.0.0.1:8080/x nats://h:1"),
        ("node_modules/vite/bin ../x ./y 1/2", "node_modules/vite/bin ../x ./y 1/2"),
    ],
)
def test_absolute_paths_are_paths_in_the_folder(text: str, found: str) -> None:
    assert mapped(text, Path("R")) == found


def test_a_health_check_may_be_taken_back() -> None:
    image = Image(Path("/"), health=["x"])
    assert image.note(Instruction("HEALTHCHECK", "NONE"))
    assert image.health == []


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(300)  # a dozen processes, one after the other
def test_the_images_commands_serve_documents(tmp_path: Path) -> None:
    """The Dockerfile's commands run in this environment instead of the images': health checks pass, an edit
    is ACKed, SIGTERM sets the document DOWN, and no file is written outside of /data and /tmp.
    """
    stages = dockerfile.parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    images: dict[str, Image] = {}
    for target in ("server", "gateway"):
        root = tmp_path / target
        for folder in ("opt", "tmp", "data"):
            (root / folder).mkdir(parents=True)
        (root / "opt/lorogo").symlink_to(sys.prefix)
        images[target] = described(stages, target, root)
    lines: list[str] = []
    image_trial.tried(
        images["server"],
        images["gateway"],
        find_nats_server(),
        tmp_path,
        lines.append,
        {"PYTHONPATH": str(ROOT)},
    )
    assert lines[-1] == "no file was written outside of /data and /tmp"
    assert (tmp_path / "server/data/worker-0/server-id").exists()

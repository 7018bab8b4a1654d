"""The Helm chart as Helm renders it: the real program, from the environment that `make` sets up."""

import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "lorogo"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
OLDEST, NEWEST = "1.30.0", "1.37.0"  # Kubernetes, by Chart.yaml and by the schemas that we have
RELEASE, NAMESPACE = "docs", "somewhere"
_SECONDS = 60.0

Manifest = dict[str, Any]


@cache
def helm() -> str:
    """The program. Where no wheel brings it and there is none either, a test is skipped, aloud."""
    brought = Path(sysconfig.get_path("scripts")) / "helm"
    found = os.environ.get("HELM") or (str(brought) if brought.exists() else shutil.which("helm"))
    if found:
        return found
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        pytest.fail("helm is missing, which the locked package helm-binary brings here: make install")
    pytest.skip("there is no helm here: install it (https://helm.sh), or name it with HELM=/path/to/helm")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The result of a Helm command."""

    code: int
    out: str
    err: str

    @property
    def manifests(self) -> list[Manifest]:
        assert self.code == 0, self.err
        return [one for one in yaml.safe_load_all(self.out) if one]


def template(chart: Path, *arguments: str, version: str = NEWEST, release: str = RELEASE) -> Rendered:
    """Render a chart."""
    done = subprocess.run(
        [helm(), "template", release, str(chart), "-n", NAMESPACE, "--kube-version", version, *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return Rendered(done.returncode, done.stdout, done.stderr)


@cache
def manifests(values: Path | None = None, *sets: str, version: str = NEWEST) -> tuple[Manifest, ...]:
    """Our chart with a file of values and `--set`s. Shared: change nothing in it."""
    files = [] if values is None else ["-f", str(values)]
    more = [word for one in sets for word in ("--set", one)]
    return tuple(template(CHART, *files, *more, version=version).manifests)


def wrong_with(found: Sequence[Manifest], version: str) -> list[str]:
    """The mistakes that Kubernetes' own schemas find in the manifests, unknown fields included."""
    problems = []
    for one in found:
        if one["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # of the Prometheus operator; tests check these separately
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(map(str, error.path))
            problems.append(f"{one['kind']} {one['metadata']['name']}: {where}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            problems.append(error.message)
    return problems


def of_kind(found: Sequence[Manifest], *kinds: str) -> list[Manifest]:
    return [one for one in found if one["kind"] in kinds]


def named(found: Sequence[Manifest], kind: str, name: str) -> Manifest:
    (one,) = [one for one in of_kind(found, kind) if one["metadata"]["name"] == name]
    return one


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that some manifest makes."""

    maker: Manifest
    metadata: Manifest
    spec: Manifest

    @property
    def component(self) -> str:
        return str(self.metadata["labels"]["app.kubernetes.io/component"])

    @property
    def container(self) -> Manifest:
        (one,) = self.spec["containers"]
        return dict(one)


def pods(found: Sequence[Manifest]) -> Iterator[Pod]:
    """Every kind of pod."""
    for one in of_kind(found, "StatefulSet", "Deployment", "CronJob"):
        spec = one["spec"]
        made = (spec["jobTemplate"]["spec"] if one["kind"] == "CronJob" else spec)["template"]
        yield Pod(one, made["metadata"], made["spec"])


def pod(found: Sequence[Manifest], component: str) -> Pod:
    (one,) = [one for one in pods(found) if one.component == component]
    return one

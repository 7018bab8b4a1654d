"""One precedence for all: a flag before a variable, that before the file, that before the default."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lorogo_cli.config import variables
from lorogo_cli.config.choice import ResolvedSettings, SettingSource, choose, shown_value
from lorogo_cli.config.entries import SECTIONS, TOP, entries
from lorogo_cli.config.files import parse
from lorogo_cli.config.mistakes import InvalidConfiguration
from lorogo_cli.config.service_settings import gateway_settings, server_settings
from lorogo_cli.errors import CommandError
from lorogo_gateway.settings import GatewaySettings
from lorogo_server import ServerSettings
from lorogo_transport.secret_files import SECRET_BYTES_MAX, SecretUnusable

HERE = Path("/here/lorogo.toml")
SEED = "SU" + "A" * 56
PASSWORD = "hunter2"


def chosen(
    section: str = "serve",
    *,
    typed: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
) -> ResolvedSettings:
    file = None if text is None else parse(text, HERE)
    return choose(section, typed=typed or {}, environment=environment or {}, file=file)


def refused(section: str = "serve", **more: Any) -> list[str]:
    with pytest.raises(InvalidConfiguration) as error:
        chosen(section, **more)
    return [str(one) for one in error.value.mistakes]


@pytest.mark.parametrize(
    ("typed", "variable", "text", "value", "place"),
    [
        ("1", "2", "[serve]\nidle_seconds = 3", 1.0, "--idle-seconds"),
        (None, "2", "[serve]\nidle_seconds = 3", 2.0, "LOROGO_SERVE_IDLE_SECONDS"),
        (None, "", "[serve]\nidle_seconds = 3", 3.0, f"{HERE} line 2"),
        (None, "  ", "[serve]\nidle_seconds = 3", 3.0, f"{HERE} line 2"),
        (None, "", "[gateway]\nidle_seconds = 3", 300.0, "default"),
        (None, "", None, 300.0, "default"),
        ("300", "2", None, 300.0, "--idle-seconds"),
    ],
)
def test_who_wins(typed: str | None, variable: str, text: str | None, value: float, place: str) -> None:
    """An empty variable is none, and the section of another command is not ours."""
    flags = {} if typed is None else {"idle_seconds": typed}
    found = chosen(typed=flags, environment={"LOROGO_SERVE_IDLE_SECONDS": variable}, text=text)
    choice = found.choices["idle_seconds"]
    assert (choice.value, choice.place) == (value, place)
    assert server_settings(found).idle_seconds == value


def test_a_section_wins_over_what_stands_before_it() -> None:
    text = "log = 'error'\nopen = true\n[gateway]\nlog = 'debug'\nopen = false"
    for section, level, is_open in (("serve", "error", True), ("gateway", "debug", False)):
        found = chosen(section, text=text)
        assert (found["log"], found["open"]) == (level, is_open)
    assert chosen("auth", text=text)["log"] == "error"
    assert chosen("gateway", text=text, environment={"LOROGO_OPEN": "yes"})["open"] is True
    assert chosen("serve", text=text, environment={"LOROGO_OPEN": "0"})["open"] is False


def test_without_a_word_everything_is_as_the_code_has_it() -> None:
    """The defaults are those of the dataclasses; days become seconds and back exactly."""
    assert server_settings(chosen("serve")) == ServerSettings()
    assert gateway_settings(chosen("gateway")) == GatewaySettings()
    for section in SECTIONS:
        for choice in chosen(section).choices.values():
            assert choice.source is SettingSource.DEFAULT


def test_every_setting_can_be_given_in_every_way() -> None:
    """The default of a setting is a valid variable and a valid flag; no two settings share a name."""
    for section in SECTIONS:
        for key, entry in entries(section).items():
            default = entry.setting.default
            if default in (None, (), "") or isinstance(default, bool):
                continue
            said = entry.setting.shown(default) if isinstance(default, int | float) else default
            for found in (
                chosen(section, environment={entry.variable: said}),
                chosen(section, typed={key: said} if entry.flag else {}),
            ):
                assert found[key] == chosen(section)[key], key
        flags = [one.flag for one in entries(section).values() if one.flag]
        assert len(flags) == len(set(flags))
    own = [one.variable for name in SECTIONS for one in entries(name).values() if not one.shared]
    assert sorted({*own} - {"LOROGO_NATS_SEED"}) == sorted(one for one in own if one != "LOROGO_NATS_SEED")
    assert {key for key, one in entries("serve").items() if one.shared} == entries(TOP).keys()


@pytest.mark.parametrize(
    ("section", "variable", "value", "words"),
    [
        ("serve", "LOROGO_SERVE_REPLICAS", "2", "must be 1, 3 or 5, not '2'"),
        ("serve", "LOROGO_SERVE_WORKERS", "two", "must be a whole number from 1 to 256, not 'two'"),
        ("serve", "LOROGO_SERVE_WORKERS", "1e2", "must be a whole number from 1 to 256, not '1e2'"),
        ("serve", "LOROGO_SERVE_IDLE_SECONDS", "nan", "must be a number above 0, not 'nan'"),
        ("serve", "LOROGO_SERVE_IDLE_SECONDS", "inf", "must be a number above 0, not 'inf'"),
        ("serve", "LOROGO_SERVE_IDLE_SECONDS", "1e999", "must be a number above 0, and at most 3153600000"),
        ("serve", "LOROGO_OPEN", "maybe", "must be true or false, not 'maybe'"),
        ("serve", "LOROGO_LOG", "loud", "must be debug, info, warning or error, not 'loud'"),
        ("gateway", "LOROGO_GATEWAY_PORT", "http", "must be a whole number from 0 to 65535, not 'http'"),
        ("gateway", "LOROGO_GATEWAY_ORIGINS", "http://a,x", ": 'x' is not an origin; write it as https://app"),
        (
            "serve",
            "LOROGO_NATS_SEED_FILE",
            SEED,
            "is not the name of a file: that is the seed itself, not a file",
        ),
        ("serve", "LOROGO_NATS", f"http://a:{PASSWORD}@x", "must be an address of NATS"),
    ],
)  # fmt: skip
def test_a_wrong_variable_is_refused(section: str, variable: str, value: str, words: str) -> None:
    (found,) = refused(section, environment={variable: value})
    assert found.removeprefix(variable).lstrip().startswith(words), found
    assert PASSWORD not in found and SEED not in found


def test_lists_in_variables_have_commas() -> None:
    found = chosen("gateway", environment={"LOROGO_GATEWAY_ORIGINS": "http://a, http://b:1"})
    assert gateway_settings(found).origins == ("http://a", "http://b:1")
    found = chosen("gateway", typed={"origins": ["http://c"]}, text="[gateway]\norigins = ['http://d']")
    assert gateway_settings(found).origins == ("http://c",)


# --- mistakes of others ----------------------------------------------------------------------------------


def test_a_mistake_in_another_section_is_a_remark() -> None:
    """A server starts despite a mistyped limit of the gateway; a mistake outside all sections stops every
    service.
    """
    text = "[gateway]\nprot = 1\n"
    (remark,) = chosen("serve", text=text).remarks
    assert str(remark) == f"{HERE}:2: [gateway] prot is not a setting; did you mean port?"
    assert len(refused("gateway", text=text)) == 1
    for text in ("opne = true", "[servre]\nworkers = 2", "open = 3", "not TOML"):
        assert [len(refused(section, text=text)) for section in SECTIONS] == [1, 1, 1]


def test_an_unknown_variable_is_a_remark() -> None:
    """With the one that may be meant; the environment is not ours alone, so it stops nothing."""
    environment = {"LOROGO_SERVE_IDLE_SECOND": "5", "LOROGO_XYZZYPLUGH": "1", "PATH": "/bin", "lorogo_x": "1"}
    assert [str(one) for one in chosen(environment=environment).remarks] == [
        "LOROGO_SERVE_IDLE_SECOND is not a variable of lorogo; did you mean LOROGO_SERVE_IDLE_SECONDS?",
        "LOROGO_XYZZYPLUGH is not a variable of lorogo",
    ]


def test_what_kubernetes_sets_is_none_of_ours() -> None:
    """Services called lorogo and lorogo-gateway: one of their variables has the name of a setting."""
    environment = {
        "LOROGO_SERVICE_HOST": "10.0.0.11",
        "LOROGO_PORT": "tcp://10.0.0.11:8080",
        "LOROGO_GATEWAY_SERVICE_HOST": "10.0.0.11",
        "LOROGO_GATEWAY_SERVICE_PORT": "8080",
        "LOROGO_GATEWAY_SERVICE_PORT_HTTP": "8080",
        "LOROGO_GATEWAY_PORT": "tcp://10.0.0.11:8080",
        "LOROGO_GATEWAY_PORT_8080_TCP": "tcp://10.0.0.11:8080",
        "LOROGO_GATEWAY_PORT_8080_TCP_PROTO": "tcp",
        "LOROGO_GATEWAY_PORT_8080_TCP_ADDR": "10.0.0.11",
    }
    found = chosen("gateway", environment=environment)
    assert found.remarks == ()
    assert found["port"] == 8080 and found.choices["port"].source is SettingSource.DEFAULT
    assert chosen("gateway", environment={"LOROGO_GATEWAY_PORT": "81"})["port"] == 81


def test_every_variable_that_the_code_reads_is_known() -> None:
    """Variables that no service reads are known too, so they cause no remark."""
    root = Path(__file__).parents[3]
    packages = [path for path in root.glob("lorogo_*/**/*.py") if "config" not in path.parts]
    text = "".join(path.read_text(encoding="utf-8") for path in packages)
    read = set(re.findall(r"\"(LOROGO_[A-Z_]*[A-Z])\"", text))
    assert len(read) > 8
    assert read <= variables.known()


# --- secrets ---------------------------------------------------------------------------------------------


def test_a_secret_comes_from_a_file_or_a_variable(tmp_path: Path) -> None:
    """Flag, variable, the file that a variable names, the file that the settings name: in this order."""
    for name in ("flag", "variable", "settings"):
        path = tmp_path / name
        path.touch(0o600)
        path.write_text(name)
    text = f"[serve]\njournal_secret_file = '{tmp_path}/settings'"
    held, named = (
        {"LOROGO_JOURNAL_SECRET": "itself"},
        {"LOROGO_JOURNAL_SECRET_FILE": str(tmp_path / "variable")},
    )
    typed = {"journal_secret_file": str(tmp_path / "flag")}
    for more, secret in (
        ({"typed": typed, "environment": held | named, "text": text}, "flag"),
        ({"environment": held | named, "text": text}, "itself"),
        ({"environment": named, "text": text}, "variable"),
        ({"text": text}, "settings"),
        ({}, None),
    ):
        assert chosen(**more).secret("journal_secret_file", "the secret") == secret
    (tmp_path / "settings").chmod(0o644)
    with pytest.raises(SecretUnusable, match="chmod 600"):
        chosen(text=text).secret("journal_secret_file", "the secret")
    huge = chosen(environment={"LOROGO_JOURNAL_SECRET": "x" * (SECRET_BYTES_MAX + 1)})
    with pytest.raises(SecretUnusable, match="LOROGO_JOURNAL_SECRET has more than"):
        huge.secret("journal_secret_file", "the secret")


@pytest.mark.parametrize(
    ("section", "key", "environment", "shown"),
    [
        ("serve", "journal_secret_file", {"LOROGO_JOURNAL_SECRET": PASSWORD}, "(set, not shown)"),
        ("serve", "keys_file", {"LOROGO_KEYS": PASSWORD}, "(set, not shown)"),
        ("serve", "nats_seed_file", {"LOROGO_NATS_SEED": SEED}, "(set, not shown)"),
        ("serve", "nats_seed_file", {"LOROGO_NATS_SEED_FILE": "/x/server.seed"}, "/x/server.seed"),
        ("serve", "nats", {"LOROGO_NATS": f"nats://ann:{PASSWORD}@h:4222"}, "nats://...@h:4222"),
        ("serve", "nats", {"LOROGO_NATS": f"ann:{PASSWORD}@h"}, "...@h"),
        ("serve", "nats", {"LOROGO_NATS": f"ann:{PASSWORD}@h,nats://i"}, "...@h,nats://i"),
        ("serve", "nats", {"LOROGO_NATS": f"nats://a:{PASSWORD}@h,nats://b:{PASSWORD}@i"}, "nats://...@i"),
        ("serve", "archive", {"LOROGO_SERVE_ARCHIVE": f"ftp://ann:a,{PASSWORD}@h/x"}, "ftp://...@h/x"),
        ("serve", "wal_bytes_max", {}, "0 (fits JetStream's storage)"),
        ("serve", "update_bytes_max", {}, "64MiB"),
        ("serve", "open", {"LOROGO_OPEN": "on"}, "true"),
        ("gateway", "origins", {}, "(none)"),
        ("gateway", "tls_cert", {}, "(none)"),
        ("gateway", "host", {}, "127.0.0.1"),
    ],
)
def test_values_are_shown_and_secrets_are_not(
    section: str, key: str, environment: dict[str, str], shown: str
) -> None:
    choice = chosen(section, environment=environment).choices[key]
    assert shown_value(choice) == shown
    assert PASSWORD not in repr(choice) and SEED not in repr(choice)


def test_a_password_is_never_a_flag() -> None:
    (found,) = refused(typed={"nats": f"nats://ann:{PASSWORD}@h"})
    assert "LOROGO_NATS" in found and PASSWORD not in found
    (found,) = refused(typed={"archive": f"ftp://ann:{PASSWORD}@h/x"})
    assert "LOROGO_SERVE_ARCHIVE" in found and PASSWORD not in found


# --- what goes together ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "more", "words"),
    [
        (
            "serve",
            {"text": "[serve]\narchive = 'file:///x'", "environment": {"LOROGO_SERVE_DURABILITY": "stream"}},
            f"archive ({HERE} line 2) contradicts LOROGO_SERVE_DURABILITY stream, which keeps no journal",
        ),
        (
            "serve",
            {"text": "[serve]\nupdate_bytes_max = '2MiB'\nunfinished_bytes_max = '1MiB'"},
            f"unfinished_bytes_max ({HERE} line 3) must not be below update_bytes_max ({HERE} line 2)",
        ),
        (
            "gateway",
            {"typed": {"tls_cert": "x"}},
            "a certificate and its key go together: --tls-cert and --tls-key",
        ),
        (
            "gateway",
            {"environment": {"LOROGO_GATEWAY_BODIES_BYTES_MAX": "1MiB"}},
            "LOROGO_GATEWAY_BODIES_BYTES_MAX must not be below body_bytes_max",
        ),
    ],
)
def test_a_contradiction_names_the_settings_as_they_were_given(
    section: str, more: dict[str, Any], words: str
) -> None:
    found = chosen(section, **more)
    with pytest.raises(CommandError) as refusal:
        server_settings(found) if section == "serve" else gateway_settings(found)
    assert str(refusal.value).startswith(words)


def test_room_for_unfinished_updates_goes_along() -> None:
    """The limit is four of the largest updates, unless it is set itself."""
    found = server_settings(chosen(text="[serve]\nupdate_bytes_max = '1MiB'"))
    assert found.unfinished_bytes_max == 4 << 20
    text = "[serve]\nupdate_bytes_max = '1MiB'\nunfinished_bytes_max = '9MiB'"
    assert server_settings(chosen(text=text)).unfinished_bytes_max == 9 << 20
    text = "[serve]\ndurability = 'replicated'\njournal_listen = '0.0.0.0:7400'\njournal_keep_days = 2"
    found = server_settings(chosen(text=text))
    assert (found.journal_host, found.journal_port, found.journal_keep_seconds) == ("0.0.0.0", 7400, 172_800)

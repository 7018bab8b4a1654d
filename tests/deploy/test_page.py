"""docs/DEPLOY.md keeps its promises: commands can be typed, files and units are there."""

import re

from lorogo_cli.config import variables
from lorogo_transport.auth.auth_service import NEEDED
from tests.deploy.support import ROOT, understood
from tests.deploy.units import SERVICES, Unit
from tests.pages import unknown_options

PAGE = (ROOT / "docs" / "DEPLOY.md").read_text(encoding="utf-8")


def test_commands_can_be_typed() -> None:
    """Those of lorogo in indented lines and in backquotes."""
    typed = re.findall(r"^    (?:/opt/lorogo/bin/)?lorogo (\S[^#\n]*)", PAGE, re.MULTILINE)
    assert len(typed) == 2
    for words in typed:
        understood(words.split())
    named = re.findall(r"`(lorogo [^`]+)`", PAGE)
    assert len(named) >= 10
    for words in named:
        assert not unknown_options(words.split()), words


def test_every_variable_is_one_that_is_read() -> None:
    """By lorogo, or a configuration of NATS."""
    seeds = {f"LOROGO_{name.upper().replace('-', '_')}_SEED_FILE" for name in NEEDED}
    known = seeds | {"LOROGO_NATS", "LOROGO_KEYS_FILE", "LOROGO_NATS_SEED_FILE", "LOROGO_LOG", "LOROGO_OPEN"}
    known |= {"LOROGO_GATEWAY_HOST_NAMES", "LOROGO_DEV_ROUTE_PASSWORD"}
    assert set(re.findall(r"LOROGO_\w+", PAGE)) == known
    assert known <= variables.known() | {"LOROGO_DEV_ROUTE_PASSWORD"}
    assert Unit.of("lorogo-gateway.service").one("EnvironmentFile") == "-/etc/lorogo/lorogo.env"


def test_what_is_installed_is_there() -> None:
    """Each file of ours that the steps copy, and each unit of the table."""
    for pattern in re.findall(r"(deploy/[\w/.*-]+)", PAGE):
        assert list(ROOT.glob(pattern)), pattern
    section = PAGE.partition("| unit | is | keeps |")[2]
    named = {
        f"{name}.service".replace("@1", "@")
        for name in re.findall(r"^\| `([\w@-]+)` \|", section, re.MULTILINE)
    }
    assert named | {"lorogo-pipeline.service"} == set(SERVICES)


def test_folders_are_those_of_the_units() -> None:
    for name in SERVICES:
        for folder in Unit.of(name).all("StateDirectory"):
            assert f"/var/lib/{folder.replace('%i', '1')}" in PAGE

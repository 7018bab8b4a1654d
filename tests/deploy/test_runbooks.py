"""docs/OPERATIONS.md, docs/runbooks and docs/KUBERNETES.md: every command in them exists."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.charts import CHART
from tests.pages import unknown_options

ROOT = Path(__file__).parents[2]
OPERATIONS = (ROOT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))
}
RUNBOOKS = "\n".join(PAGES.values())
KUBERNETES = (ROOT / "docs" / "KUBERNETES.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """Every `lorogo ...` in an indented line, or in backquotes; each once."""
    lines = re.findall(r"^ {4,}(lorogo [^#&\n]+)", text, re.MULTILINE)
    lines += re.findall(r"`(?:kubectl exec [\w-]+ -- )?(lorogo [a-z][^`]*)`", text)
    return list(dict.fromkeys(line.strip() for line in lines))


@pytest.mark.parametrize("line", commands(f"{RUNBOOKS}\n{OPERATIONS}\n{KUBERNETES}"))
def test_every_command_can_be_typed(line: str) -> None:
    """The command exists, and so do its options."""
    assert (
        unknown_options(
            [word.partition("=")[0] if word.startswith("--") else word for word in shlex.split(line)]
        )
        == set()
    )


def test_there_are_commands() -> None:
    found = " ".join(commands(RUNBOOKS))
    for name in (
        "status",
        "reset",
        "compact",
        "restore",
        "log verify",
        "log repair",
        "log ship",
        "token keys new",
        "doc delete",
    ):
        assert f"lorogo {name} " in f"{found} ", name


def test_a_command_that_is_none_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        unknown_options(["lorogo", "mend", "ID"])
    assert unknown_options(["lorogo", "reset", "ID", "--hard"]) == {"--hard"}


def test_values_that_pages_name_are_values_of_the_chart() -> None:
    """As in `server.persistence.size`, in backquotes or given to helm."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    tops = "|".join(key for key, value in values.items() if isinstance(value, dict))
    text = KUBERNETES + OPERATIONS.partition("\n## When an alert fires\n")[2] + RUNBOOKS
    found = re.findall(rf"(?:`|--set |^    )((?:{tops})(?:\.[A-Za-z]+)+)", text, re.MULTILINE)
    assert len(set(found)) > 15
    for path in found:
        at: Any = values
        for name in path.split("."):
            assert name in at, path
            at = at[name]


def test_links_lead_somewhere() -> None:
    """Of these pages every link to a file of ours names one, and every link into a page a heading."""
    for page, text in {"docs/KUBERNETES.md": KUBERNETES, "docs/OPERATIONS.md": OPERATIONS, **PAGES}.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            assert path.exists(), target
            if anchor:
                headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in headings}
                assert anchor in slugs, target

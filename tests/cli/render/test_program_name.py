"""The command as it can be typed here."""

from pathlib import Path

import pytest

from lorogo_cli.render.program_name import typed


@pytest.mark.parametrize(
    ("argv0", "found", "expected"),
    [
        ("{cwd}/.venv/bin/lorogo", None, ".venv/bin/lorogo"),
        (".venv/bin/lorogo", None, ".venv/bin/lorogo"),
        ("{cwd}/.venv/bin/lorogo", "{cwd}/.venv/bin/lorogo", "lorogo"),
        ("{cwd}/.venv/bin/lorogo", "/elsewhere/bin/lorogo", ".venv/bin/lorogo"),
        ("{cwd}/lorogo", None, "./lorogo"),
        ("/opt/with space/lorogo", None, "'/opt/with space/lorogo'"),
        ("/site/lorogo_cli/__main__.py", None, ".venv/bin/python -m lorogo_cli"),
    ],
)
def test_the_printed_command_can_be_typed(
    tmp_path: Path, argv0: str, found: str | None, expected: str
) -> None:
    """`lorogo` only if the shell finds this very one; else the way to it, as short as it can be."""
    which = None if found is None else found.format(cwd=tmp_path)
    python = f"{tmp_path}/.venv/bin/python"
    assert typed(argv0.format(cwd=tmp_path), python, tmp_path, lambda _: which) == expected

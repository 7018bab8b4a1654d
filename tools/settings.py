"""`make settings`: write the tables of docs/SETTINGS.md, and deploy/lorogo.toml, from the code."""

from pathlib import Path

from lorogo_cli.config import pages

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- made by `make settings` -->\n", "<!-- end -->\n"


def page(text: str) -> str:
    """Return the page with current tables."""
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert found
    assert end
    return f"{before}{BEGIN}\n{pages.tables(short=True)}\n{END}{after}"


def main() -> None:
    """Write both files."""
    settings = ROOT / "docs" / "SETTINGS.md"
    settings.write_text(page(settings.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "deploy").mkdir(exist_ok=True)
    (ROOT / "deploy" / "lorogo.toml").write_text(pages.example(), encoding="utf-8")


if __name__ == "__main__":
    main()

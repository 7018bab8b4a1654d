"""The lorogo packages as a zip, for workers that have only the libraries (`--py-files`, Spark Connect)."""

import zipfile
from pathlib import Path

_OURS = "lorogo_*"
_WHEN = (1980, 1, 1, 0, 0, 0)  # a fixed time: the same code gives the same bytes


def root() -> Path:
    """Return the folder of the packages."""
    return Path(__file__).resolve().parents[2]


def pack(target: Path) -> Path:
    """Write every lorogo package to the zip `target`."""
    folder = root()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in sorted(folder.glob(_OURS)):
            for path in sorted(package.rglob("*")):
                if path.is_file() and path.suffix != ".pyc":
                    entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _WHEN)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, path.read_bytes())
    return target

"""The installed release of lorogo, as set in pyproject.toml."""

import functools
from importlib import metadata

NOT_INSTALLED = "0.0.0"  # run from a source tree without installation


@functools.cache
def release() -> str:
    """Return the installed version."""
    try:
        return metadata.version("lorogo")
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED

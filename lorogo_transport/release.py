"""Which release of lorogo this is: pyproject.toml says it, and what is installed has it from there."""

import functools
from importlib import metadata

NOT_INSTALLED = "0.0.0"  # run from a folder that nobody has installed


@functools.cache
def release() -> str:
    """The version of the lorogo that is installed."""
    try:
        return metadata.version("lorogo")
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED

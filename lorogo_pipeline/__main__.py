"""`python -m lorogo_pipeline NAME ...` and `spark-submit .../lorogo_pipeline/__main__.py NAME ...`."""

import sys


def main() -> int:
    """Run `lorogo pipeline`; the only module of the package that imports the command line."""
    from lorogo_cli.app import run  # noqa: PLC0415 - the command line is above the pipeline

    return run(["pipeline", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

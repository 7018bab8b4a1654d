"""The command `lorogo`, a thin layer over the client, the server and the transport.

Heavy modules are imported when a command needs them, so that `lorogo --help` is quick. Start with `app.py`:
it lists the commands and names the module of each.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command and end the process with its exit code."""
    try:
        import rich  # noqa: F401  # checks only that it is installed
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write("lorogo: the command needs its libraries: pip install 'lorogo[cli]'\n")
        raise SystemExit(2) from None
    try:
        from lorogo_cli.app import run
    except KeyboardInterrupt:  # Ctrl-C while modules load
        raise SystemExit(130) from None
    raise SystemExit(run(sys.argv[1:]))

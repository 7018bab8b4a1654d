"""The command `lorogo`: thin over the client, the server and the transport.

Nothing heavy is imported before a command needs it, so that `lorogo --help` is quick. Open `app.py`
first: it lists the commands; each one's work is in the file that it names.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command and end the process with its exit code."""
    try:
        import rich  # noqa: F401  # only whether it is there
        import typer  # noqa: F401
    except ImportError:
        sys.stderr.write("lorogo: the command needs its libraries: pip install 'lorogo[cli]'\n")
        raise SystemExit(2) from None
    try:
        from lorogo_cli.app import run
    except KeyboardInterrupt:  # loading takes a moment, and Ctrl-C may come in it
        raise SystemExit(130) from None
    raise SystemExit(run(sys.argv[1:]))

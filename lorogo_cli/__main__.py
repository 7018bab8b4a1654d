"""`python -m lorogo_cli`: the command without its script; workers of `lorogo serve` start this way."""

from lorogo_cli import main

if __name__ == "__main__":
    main()

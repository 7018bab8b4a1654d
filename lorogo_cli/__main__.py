"""`python -m lorogo_cli` runs the command without its script; `lorogo serve` starts its workers this way."""

from lorogo_cli import main

if __name__ == "__main__":
    main()

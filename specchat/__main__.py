"""`python -m specchat`."""

from specchat.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

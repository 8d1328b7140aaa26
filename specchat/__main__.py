"""`python -m specchat`."""

from __future__ import annotations

from specchat.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

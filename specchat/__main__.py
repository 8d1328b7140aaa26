"""`python -m specchat`."""

import gc
from signal import SIGINT


def main() -> int:
    """Run the command line and return its exit code; Ctrl+C may come while it is imported."""
    gc.disable()  # imports leave no garbage; a command begins to collect once it is imported
    try:
        from specchat.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 128 + SIGINT


if __name__ == "__main__":
    raise SystemExit(main())

"""The command line: parsing, printing, exit codes.

Data goes to stdout and everything else to stderr; no traceback reaches a user. Importing this loads
neither llama.cpp nor Textual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from specchat.cli.arguments import parse
from specchat.errors import Cancelled, InvalidOption, SpecchatError

__all__ = ["main"]

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        parsed = parse(arguments)
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except (KeyboardInterrupt, Cancelled):
        return INTERRUPTED
    except BrokenPipeError:  # the reader went away, as head does; nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE
    except SpecchatError as error:
        print(f"specchat: {error}", file=sys.stderr)
        return MISUSED if isinstance(error, InvalidOption) else FAILED
    except MemoryError:
        print("specchat: no memory left: choose a smaller model or --ctx", file=sys.stderr)
        return FAILED
    return code

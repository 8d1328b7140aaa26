"""The command line: parsing, printing, exit codes.

Data goes to stdout and everything else to stderr; no traceback reaches a user. Importing this loads
neither llama.cpp nor Textual.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from specchat.cli.arguments import parse
from specchat.cli.terminal import say
from specchat.errors import Cancelled, InvalidOption, SpecchatError

__all__ = ["main"]

DONE, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        _prepare_streams()
        parsed = parse(arguments)
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except (KeyboardInterrupt, Cancelled):
        return INTERRUPTED
    except BrokenPipeError:  # the reader went away, as head does; nobody is left to tell
        _silence_stdout()
        return DONE
    except SpecchatError as error:
        return _fail(str(error), MISUSED if isinstance(error, InvalidOption) else FAILED)
    except MemoryError:
        return _fail("no memory left: choose a smaller model or --ctx")
    except OSError as error:
        _silence_stdout()
        what = error.strerror or str(error)
        return _fail(f"{error.filename}: {what}" if error.filename else what)
    except Exception as error:
        if os.environ.get("SPECCHAT_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        return _fail(f"an error of specchat's own ({what}); SPECCHAT_DEBUG=1 shows where")
    return code


def _prepare_streams() -> None:
    """Have streams to write to, closed as they may be, that take any character."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _fail(message: str, code: int = FAILED) -> int:
    """Say on one line what went wrong."""
    say(f"specchat: {message}")
    return code


def _silence_stdout() -> None:
    """Keep Python from complaining, when it exits, of output that nobody can take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

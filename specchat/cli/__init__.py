"""The command line: parsing, printing, exit codes.

Data goes to stdout and everything else to stderr; the user never sees a traceback. Importing this
package loads neither llama.cpp nor Textual.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from specchat.cli.arguments import parse, run
from specchat.cli.terminal import DONE, FAILED, INTERRUPTED, USAGE_ERROR, say
from specchat.errors import Cancelled, InvalidOption, SpecchatError
from specchat.system.installation import NO_HOME, has_home, missing_package

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        _prepare_streams()
        code = _run(parse(arguments))
        sys.stdout.flush()
    except (KeyboardInterrupt, Cancelled):
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has closed it, as `head` does
        _silence_stdout()
        return DONE
    except SpecchatError as error:
        return _fail(str(error), USAGE_ERROR if isinstance(error, InvalidOption) else FAILED)
    except MemoryError:
        return _fail("out of memory: choose a smaller model or a smaller --ctx")
    except OSError as error:
        _silence_stdout()
        reason = error.strerror or str(error)
        return _fail(f"{error.filename}: {reason}" if error.filename else reason)
    except Exception as error:
        if os.environ.get("SPECCHAT_DEBUG"):  # developers get the traceback
            raise
        return _fail(missing_package(error) or _log(error))
    return code


def _run(arguments: argparse.Namespace) -> int:
    if not has_home():
        raise SpecchatError(NO_HOME)
    return run(arguments)


def _prepare_streams() -> None:
    """Make stdout and stderr accept any character; replace closed streams by the null device."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _log(error: Exception) -> str:
    from specchat.system.logs import (
        log_internal_error,  # it needs packages, and only errors need it
    )

    return log_internal_error(error)


def _fail(message: str, code: int = FAILED) -> int:
    say(f"specchat: {message}")
    return code


def _silence_stdout() -> None:
    """Redirect stdout to the null device, so that Python prints no error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

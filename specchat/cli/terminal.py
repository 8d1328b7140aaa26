"""Terminal output and input for all commands: messages, questions, tables; exit codes."""

import argparse
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from specchat.errors import InvalidOption
from specchat.safe_text import harmless, in_one_line, safe_json

DONE, FAILED, USAGE_ERROR, INTERRUPTED = 0, 1, 2, 130


def say(line: str) -> None:
    """Print one line on stderr; control characters in names and paths are replaced."""
    print(in_one_line(line), file=sys.stderr)


def has_colours(stream: TextIO | None = None) -> bool:
    """Return True if what is printed on a stream, stdout by default, may be coloured.

    NO_COLOR forbids it, then FORCE_COLOR and CLICOLOR_FORCE demand it, then CLICOLOR=0 and
    TERM=dumb forbid it; otherwise it takes a terminal.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(
        os.environ.get(name, "0") not in {"", "0"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")
    ):
        return True
    if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") == "dumb":
        return False
    return (stream or sys.stdout).isatty()


def show_line(line: str = "") -> None:
    """Replace or clear the last progress line; does nothing without a terminal that can."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(f"\r\x1b[K{in_one_line(line)}", end="", file=sys.stderr, flush=True)


def confirm(question: str, *, otherwise: str, default: bool = False) -> bool:
    """Return the answer to a yes-or-no question; Enter takes the default, end of input means no.

    Raises InvalidOption without a terminal; `otherwise` says how to avoid the question.
    """
    require_terminal(otherwise)
    choices = "[Y/n]" if default else "[y/N]"
    print(f"{in_one_line(question)} {choices} ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # so that the shell prompt starts on a new line
        raise
    return answer.strip().lower() in {"y", "yes"} or (default and answer.isspace())


def require_terminal(otherwise: str) -> None:
    """Raise InvalidOption if there is no terminal to answer a question on."""
    if not (sys.stdin and sys.stdin.isatty()):
        raise InvalidOption(f"cannot ask for confirmation without a terminal: {otherwise}")


def press(question: str) -> str:
    """Return the key pressed to answer a question, without Enter; "" for a special key."""
    print(in_one_line(question), end=" ", file=sys.stderr, flush=True)
    try:
        return _key()
    finally:
        print(file=sys.stderr)


def _key() -> str:
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.getwch()
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keys pressed earlier count too
        pressed = os.read(terminal, 16)  # special keys send several bytes
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    return pressed.decode("utf-8", "replace") if len(pressed) == 1 else ""


def print_exactly(text: str, end: str = "\n") -> None:
    """Print a text on stdout unchanged; on a terminal, control characters are replaced."""
    print(harmless(text) if sys.stdout.isatty() else text, end=end)


def print_json(record: object) -> None:
    """Print a record as one line of JSON on stdout."""
    print(safe_json(record))


def print_result(
    arguments: argparse.Namespace, record: object, lines: Sequence[str], nothing: str = ""
) -> None:
    """Print a command's result: its record with --json, otherwise lines of text.

    If there are no lines, print `nothing` to stderr.
    """
    if arguments.json:
        print_json(record)
    elif lines:
        print(harmless("\n".join(lines)))
    else:
        say(nothing)


def table_lines(rows: Iterable[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return rows of cells as lines of aligned columns; the columns in `left` are left-aligned."""
    table = [[in_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]

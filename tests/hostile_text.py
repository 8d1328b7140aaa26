"""Text that would change a terminal if it reached it as it is, and a check that it did not."""

import re

MARK = "0wned"
"""Stands in every hostile text: where it shows, the text was printed."""
SEQUENCES = (
    "\x1b[5;97m",  # colours
    "\x1b[7;777H",  # the place of the next character
    f"\x1b]0;{MARK}\x07",  # the window's title
    f"\x1b]52;c;{MARK}\x07",  # the clipboard
    f"\x1b]8;;http://{MARK}\x1b\\",  # a link
    f"\x1bP{MARK}\x1b\\",  # a device control string
    "\x1bc",  # a full reset
    "\x9b5;97m",  # the same in single characters, C1
    f"\x9d52;c;{MARK}\x9c",
    f"\x90{MARK}\x9c",
    "\x07",
    "\x08",
    "\x0e",
    "\x7f",
    "\u202e",  # from right to left
    "\u2066",
    "\r",
)
HOSTILE = MARK + "".join(SEQUENCES)
IN_FILE_NAME = HOSTILE.replace("/", "")
IN_TOML = "".join(f"\\u{ord(each):04x}" for each in HOSTILE)
"""For a string in double quotes."""

OWN = re.compile(
    r"\x1b\[(?:[0-9;]*m|K|\?1049[hl]|\?25[hl]|2J|\d+;1H|H)"  # colours, progress, the race
    r"|\r(?=\x1b\[K)|\r\n"
)
"""What commands send on purpose; a pseudo-terminal makes two characters of each newline."""
OF_CHAT = re.compile(
    r"\x1b\]22;[a-z]*\x07|\x1b\[[<-?]?[0-9;]*[$]?[a-zA-Z]|\x1b[78=>]|\x1b\([B0]|\r"
)
"""What the chat sends to draw, to shape the pointer and to ask the terminal."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harm_in(shown: str, own: re.Pattern[str] = OWN) -> list[str]:
    """Return the pieces of what a terminal received that the program does not mean to send."""
    whole = [repr(each) for each in SEQUENCES if len(each) > 1 and each in shown]
    left = own.sub("", shown)
    return whole + [repr(left[max(0, at.start() - 20) :][:50]) for at in CONTROLS.finditer(left)]

"""`specchat help`: the documentation in the terminal."""

import argparse
import os
import pydoc
import re
import shutil
import sys
from io import StringIO

from specchat.cli.terminal import table_lines
from specchat.docs import read, topics

WIDEST = 100
USAGE = "Read a topic with specchat help TOPIC, a command's options with specchat COMMAND --help."
TOPIC_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md(?:#[\w-]+)?\)")


def run(arguments: argparse.Namespace) -> None:
    """List the topics, or show one topic or a command's options."""
    topic = arguments.topic
    if topic is None:
        print(f"{USAGE}\n")
        print("\n".join(f"  {row}" for row in table_lines(topics().items(), left=(0, 1))))
    elif topic in arguments.commands and topic not in topics():
        arguments.commands[topic].print_help()
    elif sys.stdout.isatty():
        # a terminal cannot follow the links between topics: name the command that opens them
        _show(_rendered(TOPIC_LINK.sub(r"\1 (`specchat help \2`)", read(topic))))
    else:
        print(read(topic), end="")


def _rendered(text: str) -> str:
    """Return Markdown as text with the terminal's styles, at most WIDEST columns wide."""
    from rich.console import Console  # 60 ms that only a page in a terminal needs
    from rich.markdown import Markdown

    page = StringIO()
    width = min(WIDEST, shutil.get_terminal_size().columns)
    Console(file=page, force_terminal=True, width=width).print(Markdown(text, hyperlinks=False))
    return page.getvalue()


def _show(page: str) -> None:
    """Print a page, through the user's pager if there is one that keeps colours."""
    if os.name == "nt" or not (os.environ.get("PAGER") or shutil.which("less")):
        print(page, end="")
    else:
        os.environ.setdefault("LESS", "-FRX")
        pydoc.pager(page)

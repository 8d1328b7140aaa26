"""`specchat help`: the documentation in the terminal."""

import argparse
import os
import re
import shutil
import sys

from specchat.cli.terminal import table_lines
from specchat.docs import read, topics

WIDEST = 100
USAGE = """\
Read a topic with specchat help TOPIC.
Read a command's options with specchat COMMAND --help."""
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
        # links do not work in a terminal, so name the command that opens the topic
        _show(TOPIC_LINK.sub(r"\1 (`specchat help \2`)", read(topic)))
    else:
        print(read(topic), end="")


def _show(text: str) -> None:
    """Print styled Markdown, through the user's pager if it supports styles."""
    from rich.console import Console  # importing it takes 60 ms, so only for a page in a terminal
    from rich.markdown import Markdown

    width = min(WIDEST, shutil.get_terminal_size().columns)
    console, page = Console(force_terminal=True, width=width), Markdown(text, hyperlinks=False)
    if os.name == "nt" or not (os.environ.get("PAGER") or shutil.which("less")):
        console.print(page)
        return
    os.environ.setdefault("LESS", "-FRX")
    with console.pager(styles=True):
        console.print(page)

"""The arguments of the scripts that draw the pictures of README.md: a pair and its questions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def picture_parser(description: str, output: Path) -> argparse.ArgumentParser:
    """Return a parser of the arguments that all of them take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--target", type=Path, help="a GGUF file (default: the demo pair)")
    parser.add_argument("--draft", type=Path, help="its draft model (default: none)")
    parser.add_argument("--threads", type=int, help="default: physical cores")
    parser.add_argument("--system", default="", help="a system prompt")
    parser.add_argument("--stop", help="end answers before this text; backslash n is a new line")
    parser.add_argument("--question", action="append", help="several are asked in turn")
    parser.add_argument("--output", type=Path, default=output)
    return parser


def greedy_options(words: argparse.Namespace, **options: Any) -> dict[str, Any]:
    """Return the options of an answer without chance."""
    stop = {"stop": [words.stop.replace(r"\n", "\n")]} if words.stop else {}
    return {"temperature": 0.0, **stop, **options}

"""Check the grammars of tool calls that are learned from chat templates.

A row for each template of FOLDER: the calls that its models utter, those that the template itself
writes with arguments of all types, and wrong ones, which must be refused: another name, an argument
that is missing, of another type, or unknown.

    python scripts/check/check_call_grammars.py

Exits with 1 if a grammar allows a wrong call, or refuses one that a model utters.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from scripts.setup_env.templates import PATTERN
from scripts.support.call_check import CheckedCalls, check_calls
from scripts.support.template_cases import families
from scripts.support.template_folder import find_folder


def main() -> int:
    """Print the table; return 1 if a grammar is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "folder", type=Path, nargs="?", help="templates (default: those of the set-up)"
    )
    folder = parser.parse_args().folder or find_folder()
    found = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob(PATTERN))}
    checked = [check_calls(name, text) for name, text in found.items() if name in families()]
    print("| template | uttered | written by the template | wrong ones refused | but |")
    print("|---|---|---|---|---|")
    for each in checked:
        cells = [_cell(each.uttered), _cell(each.rendered), _cell(each.refused), _detail(each)]
        print(f"| {each.name} | {' | '.join(cells)} |")
    with_grammar = [each for each in checked if not each.reason]
    right = sum(each.is_right for each in with_grammar)
    whole = sum(all(each.rendered.values()) for each in with_grammar)
    print(
        f"\n{len(checked)} templates, {len(with_grammar)} with a grammar, {right} of them right,"
        f" {whole} for all calls that the template writes."
    )
    return int(right < len(with_grammar))


def _cell(found: Mapping[str, bool]) -> str:
    return f"{sum(found.values())}/{len(found)}" if found else "-"


def _detail(each: CheckedCalls) -> str:
    parts = (each.uttered, each.rendered, each.refused)
    failed = [case for part in parts for case in part if not part[case]]
    return each.reason or ", ".join(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Check specchat's chat formats against llama-server of the same llama.cpp, template by template.

A row for each template of FOLDER: the prompts of a conversation with each level of thinking, and of
others with tools, their results and earlier reasoning at the usual level; the
parts of answers as its models utter them, whole and cut after each character, tool calls, and the
time to learn the format. Without a server, all is compared with what was recorded.

    python scripts/lab/build_llama_tools.py --tools llama-server
    python scripts/check/check_templates.py --llama-server PATH/llama-server [--record FILE]

White space at the edges of reasoning and answer does not count. Exits with 1 if anything differs
that is not known to be better.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.setup_env.running import SetUpFailed
from scripts.setup_env.stages import llama_version
from scripts.setup_env.templates import PATTERN, VARIABLE, find_templates
from scripts.support.template_cases import RECORD, families
from scripts.support.template_check import Checked, Verdict
from scripts.support.template_record import check_one, load, unexplained
from scripts.support.template_server import recorded

COLUMNS: Mapping[str, Sequence[str]] = {
    "prompts": ("prompt",),
    "history": ("history",),
    "answers": ("plain", "reasoned"),
    "cut": ("cut",),
    "calls": ("call", "calls", "reasoned call", "call after text"),
}
"""What is counted in each column of the table."""


def main() -> int:
    """Print the table; return 1 if there is something that it does not explain."""
    options = parse_arguments()
    folder = options.folder or find_folder()
    found = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob(PATTERN))}
    templates = {name: text for name, text in found.items() if name in families()}
    if unknown := ", ".join(found.keys() - families().keys()):
        print(f"not checked, since no texts are known for them: {unknown}", file=sys.stderr)
    if not templates:
        sys.exit(f"{folder} has no template whose models' texts are known")
    server = options.llama_server
    record = recorded_by(server, templates) if server else load(RECORD)
    if options.record and server:
        write(options.record, record, version_of(server))
    checked = [check_one(name, text, record.get(name)) for name, text in templates.items()]
    print_table(checked)
    return int(any(unexplained(each) for each in checked))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "folder", type=Path, nargs="?", help="templates (default: those of the set-up)"
    )
    parser.add_argument("--llama-server", type=Path, metavar="PATH", help="the program to ask")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help=f"write its answers (for the tests: {RECORD})"
    )
    options = parser.parse_args()
    if options.record and not options.llama_server:
        parser.error("--record needs --llama-server")
    if options.llama_server:
        options.llama_server = options.llama_server.resolve()
        if not options.llama_server.is_file():
            parser.error(f"{options.llama_server} is not a file: build_llama_tools.py builds it")
    return options


def find_folder() -> Path:
    """Return the folder that the set-up keeps the templates in; exit without one."""
    try:
        folder = find_templates(llama_version())
    except SetUpFailed as failure:
        sys.exit(str(failure))
    if folder is None:
        sys.exit(
            f"the templates are not here: run scripts/test once, or name a folder ({VARIABLE})"
        )
    return folder


def recorded_by(server: Path, templates: Mapping[str, str]) -> dict[str, Any]:
    """Return what a server makes of each template."""
    found = {}
    for number, (name, template) in enumerate(templates.items(), 1):
        print(f"{number}/{len(templates)} {name}", file=sys.stderr, flush=True)
        found[name] = recorded(server, template, families()[name])
    return found


def write(path: Path, record: Mapping[str, Any], version: str) -> None:
    """Write a record: a line for each template, and digests in place of its prompts."""
    lines = []
    for name, each in record.items():
        prompts = {
            case: {key: value for key, value in one.items() if key != "text"}
            for case, one in each["prompts"].items()
        }
        row = json.dumps({**each, "prompts": prompts}, ensure_ascii=False)
        lines.append(f"  {json.dumps(name)}: {row}")
    rows = ",\n".join(lines)
    path.write_text(
        f'{{\n "llama.cpp": {json.dumps(version)},\n "templates": {{\n{rows}\n }}\n}}\n', "utf-8"
    )


def version_of(server: Path) -> str:
    """Return the version and commit of llama.cpp."""
    done = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()[0].removeprefix("version: ")


def print_table(checked: Sequence[Checked]) -> None:
    """Print a row for each template, the sums, and each difference."""
    titles = ["template", *COLUMNS, "learned"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for each in checked:
        cells = [each.name, *(cell(each, *kinds) for kinds in COLUMNS.values())]
        cells.append(f"{each.learned_ms:.0f} ms")
        print(f"| {' | '.join(cells)} |")
    total = Checked("all", [finding for each in checked for finding in each.findings])
    sums = (cell(total, *kinds) for kinds in COLUMNS.values())
    slowest = max(each.learned_ms for each in checked)
    print(f"| **{len(checked)} templates** | {' | '.join(sums)} | at most {slowest:.0f} ms |")
    costs = [cost for each in checked for cost in each.read_us]
    if costs:
        print(f"\nReading takes {statistics.median(costs):.1f} us a character (median).")
    print_differences(checked)


def cell(checked: Checked, *kinds: str) -> str:
    """Return how many comparisons of some kinds were equal, and what became of the others."""
    verdicts: tuple[Verdict, ...] = ("same", "better", "differs")
    counts = {verdict: checked.count(verdict, *kinds) for verdict in verdicts}
    total = sum(counts.values())
    if not total:
        return "-"
    others = [f"{number} {name}" for name, number in counts.items() if number and name != "same"]
    return ", ".join([f"{counts['same']}/{total}", *others])


def print_differences(checked: Sequence[Checked]) -> None:
    """Print where specchat is better, and what differs without a known reason."""
    titles = {"better": "Better than llama-server", "differs": "Different"}
    for verdict, title in titles.items():
        shown = [
            f"- {each.name}, {found.what}, {found.case}: {found.detail}"
            for each in checked
            for found in each.findings
            if found.verdict == verdict
        ]
        if shown:
            print(f"\n{title}:\n\n" + "\n".join(shown))


if __name__ == "__main__":
    sys.exit(main())

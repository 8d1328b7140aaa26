"""Record what llama.cpp's own tool drafts with each kind of draft and target: a reference.

The files are the tiny models that the tests write. For DFlash 2 the tool prints no drafted tokens.

    python scripts/lab/build_llama_tools.py --tools llama-speculative-simple
    python scripts/lab/record_drafts.py tests/engine/llama_drafts.json PATH/llama-speculative-simple
"""

import argparse
import json
import re
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from scripts.support.tiny_gguf.drafts import CASES, DRAFT_LENGTH, OWN_HEAD_CASES, PROMPT, write_case

TYPES = {"EAGLE-3": "draft-eagle3", "DSpark": "draft-dspark", "MTP": "draft-mtp"}
NUM_TOKENS = 50
LINE = re.compile(
    r"draft candidate +0, pos +\d+: +(?P<drafted>\d+)"
    r"|accepted (?P<accepted>\d+)/\d+ draft tokens, the last target token is: \((?P<token>\d+)\)"
    r"|partial acceptance: (?P<part>\d+) <"
)
Step: TypeAlias = tuple[int, list[int], int, int]
"""A place in the answer, the tokens drafted there, the number accepted, the step's last token."""


def steps(tool: Path, case: str, folder: Path) -> list[Step]:
    """Return the steps of a greedy answer."""
    files = write_case(folder, case)
    command = [
        *(str(tool), "-m", str(files["target"]), "-md", str(files["draft"])),
        *("--spec-type", TYPES.get(case.split(" with ")[1].partition(" ")[0], "draft-dflash")),
        *("--spec-draft-n-max", str(DRAFT_LENGTH), "--spec-draft-p-min", "0", "-p", PROMPT),
        *("-n", str(NUM_TOKENS), "-c", "512", "-t", "1", "--temp", "0", "-lv", "5"),
        *("-fa", "off", "-ctk", "f32", "-ctv", "f32"),
    ]
    done = subprocess.run(command, capture_output=True, check=True)
    found: list[Step] = []
    drafted: list[int] = []
    place, is_again = 0, False
    for line in LINE.finditer((done.stdout + done.stderr).decode("utf-8", "replace")):
        if line["drafted"]:
            drafted.append(int(line["drafted"]))
        elif line["accepted"]:
            num_accepted = int(line["accepted"]) - is_again
            found.append((place, drafted, num_accepted, int(line["token"])))
            place += num_accepted + 1 + is_again
            drafted, is_again = [], False
        else:  # what was accepted is evaluated again, with the target's own token, which adds one
            is_again = True
    return [step for step in found if step[0] + DRAFT_LENGTH < NUM_TOKENS]  # later ones are cut


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, help="where they are recorded")
    parser.add_argument("tool", type=Path, help="llama-speculative-simple")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tool = options.tool.resolve()
        cases = {case: steps(tool, case, Path(folder)) for case in (*CASES, *OWN_HEAD_CASES)}
    lines = [f" {json.dumps(case)}: {json.dumps(found)}" for case, found in cases.items()]
    package = f'"llama-cpp-python": "{version("llama_cpp_python")}"'
    options.file.write_text("{" + ",\n".join([package, *lines]) + "}\n", "utf-8")


if __name__ == "__main__":
    main()

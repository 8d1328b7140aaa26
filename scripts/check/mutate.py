"""Change the code a little in many places, one at a time, and count the changes that tests notice.

    python scripts/check/mutate.py [--number 80] [--seed 40] [--minutes 20] [--tree FOLDER]

Covers specchat/decoding, specchat/drafting and specchat/formats, each with the tests of its
room. Comparisons, arithmetic, `and` and `or`, numbers, truth values and returned values are
swapped; texts are not. Works on a copy of the tree. The sample is drawn by a hash of the statement,
so that two commits are measured by the same mutants wherever the code is the same. Mutants run in
the order of that hash: a run that `--minutes` ends is a smaller sample. Prints a line for each
mutant, then the score. A mutant that means the same as the code is counted as one that survived.

Neither mutmut nor cosmic-ray does this: they run every mutant of a file, want a configuration or a
database, and change the tree they stand in.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from scripts.support.mutants import Mutant, find_mutants

ROOMS = {
    "specchat/decoding": "tests/decoding",
    "specchat/drafting": "tests/drafting",
    "specchat/formats": "tests/formats",
}
"""The code to change, and the tests that should notice."""
PYTEST = (
    "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header",
    "--tb=no", "--hypothesis-profile=ci", "--timeout=90",
)  # fmt: skip
CPU_SECONDS = 400
"""More than any room's tests take."""


def main() -> int:
    """Run the mutants and print how many were caught; 1 if the tests fail without a change."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--number", type=int, default=80)
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--leave-out", action="append", default=[], help="a test file not to run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specchat-mutants-") as folder:
        root = Path(folder)
        copy_tree(options.tree.resolve(), root)
        tests = {room: tests_of(root, room, options.leave_out) for room in ROOMS}
        for room, files in tests.items():
            outcome, seconds = run_tests(root, files)
            print(f"{room}: {len(files)} files of tests, {seconds:.0f} CPU seconds", flush=True)
            if outcome != "survived":
                print("the tests fail without any change", file=sys.stderr)
                return 1
        mutants = [
            mutant
            for room in ROOMS
            for path in (root / room).rglob("*.py")
            for mutant in find_mutants(root, path, options.seed)
        ]
        print(f"{len(mutants)} mutants", flush=True)
        mutants.sort(key=lambda mutant: mutant.rank)
        run_all(root, mutants[: options.number], tests, options.minutes)
    return 0


def run_all(root: Path, mutants: list[Mutant], tests: dict[str, list[str]], minutes: float) -> None:
    """Run one mutant after the other, and print each outcome and the score."""
    end = time.monotonic() + 60 * minutes
    outcomes: Counter[str] = Counter()
    by_room: Counter[tuple[str, str]] = Counter()
    for mutant in mutants:
        if time.monotonic() > end:
            break
        room = next(room for room in ROOMS if mutant.path.startswith(room))
        path = root / mutant.path
        source = path.read_bytes()
        path.write_bytes(mutant.apply(source))
        outcome, seconds = run_tests(root, nearest_first(root, mutant.path, tests[room]))
        path.write_bytes(source)
        outcomes[outcome] += 1
        by_room[room, outcome] += 1
        print(f"{outcome:9} {seconds:4.0f} s  {mutant}", flush=True)
    total = sum(outcomes.values())
    noticed = total - outcomes["survived"]
    print(f"{total} run: {noticed} noticed ({noticed / max(1, total):.0%}), {dict(outcomes)}")
    for (room, outcome), count in sorted(by_room.items()):
        print(f"{room}: {outcome} {count}")


def copy_tree(tree: Path, root: Path) -> None:
    """Copy the files that git tracks, and lend the copy the environment."""
    listed = subprocess.run(
        ["git", "-C", tree, "ls-files", "-z"], check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (tree / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, root / name)
    (root / ".venv").symlink_to((tree / ".venv").resolve())


def tests_of(root: Path, room: str, left_out: list[str]) -> list[str]:
    """Return the files of tests that import anything of a room, small ones first."""
    imports = room.replace("/", ".")
    paths = [
        path
        for path in (root / ROOMS[room]).rglob("test_*.py")
        if imports in path.read_text("utf-8") and str(path.relative_to(root)) not in left_out
    ]
    paths.sort(key=lambda path: path.stat().st_size)
    return [str(path.relative_to(root)) for path in paths]


def nearest_first(root: Path, module: str, files: list[str]) -> list[str]:
    """Return the files of tests in the order in which they are likely to notice a change."""
    *package, name = Path(module).with_suffix("").parts
    pattern = re.compile(rf"{re.escape('.'.join(package))}(\.| import .*\b){name}\b")
    return sorted(files, key=lambda file: not pattern.search((root / file).read_text("utf-8")))


def run_tests(root: Path, files: list[str]) -> tuple[str, float]:
    """Return whether the code was caught, timed out or survived, and the CPU seconds it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, *PYTEST, *files],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if ended.returncode == 0:
        return "survived", seconds
    if ended.returncode < 0 or "Timeout" in ended.stdout:
        return "timed out", seconds
    return "caught", seconds


if __name__ == "__main__":
    sys.exit(main())

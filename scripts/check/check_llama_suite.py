"""Run llama.cpp's own server tests against `specchat serve`, and compare with the known reasons.

    python scripts/lab/build_llama_tools.py --tools llama-server  # unpacks llama.cpp
    python -m venv SUITE && SUITE/bin/pip install pytest pytest-timeout aiohttp filelock \
        numpy openai prometheus_client requests wget
    python scripts/check/check_llama_suite.py PATH/llama.cpp/tools/server/tests \
        --python SUITE/bin/python [--only unit/test_basic.py]

The demo model answers, whatever model a test names. Tests that llama.cpp calls slow are left out:
they need large models. Every test that does not pass must have a reason in
scripts/support/llama_suite.toml; exits with 1 if one has none, or if one with a reason passes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from scripts.support.llama_suite import Outcome, load_reasons, read_outcomes
from scripts.support.llama_suite_plugin import FOLDER, MODEL, PYTHON, REPORT
from specchat.catalogue.pairs import find_pair

ROOT = Path(__file__).resolve().parents[2]
SECONDS_A_TEST = 300


def main() -> int:
    """Print what is not explained; return 1 if there is anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="tools/server/tests of llama.cpp's source")
    parser.add_argument("--python", type=Path, required=True, help="has what those tests import")
    parser.add_argument("--only", nargs="+", default=(), help="some of its files or tests")
    options = parser.parse_args()
    outcomes = run(options.folder, options.python, options.only)
    reasons = load_reasons()
    print(dict(Counter(each.outcome for each in outcomes)))
    wrong = 0
    for each in outcomes:
        found = [reason for reason in reasons if reason.covers(each.test)]
        if each.outcome != "passed" and not found:
            print(f"no reason: {each.test}: {each.why:.300}")
            wrong += 1
    not_passed = [each.test for each in outcomes if each.outcome != "passed"]
    for reason in () if options.only else reasons:
        for pattern in reason.tests:
            if not any(reason.matches(pattern, test) for test in not_passed):
                print(f"passes: {pattern}")
                wrong += 1
    return int(bool(wrong or not outcomes))


def run(folder: Path, python: Path, only: tuple[str, ...]) -> list[Outcome]:
    """Run the tests and return how they ended."""
    with tempfile.TemporaryDirectory(prefix="specchat-suite-") as written:
        environment = {
            PYTHON: sys.executable,
            MODEL: str(find_pair("demo").target),
            FOLDER: written,
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = ("-p", "scripts.support.llama_suite_plugin", "-p", "no:cacheprovider", "-q")
        subprocess.run(
            [python.absolute(), "-m", "pytest", *words, "-m", "not slow", "--tb=no",
             f"--timeout={SECONDS_A_TEST}", *only],
            cwd=folder, env={**os.environ, **environment}, check=False,
        )  # fmt: skip
        return read_outcomes(Path(written, REPORT))


if __name__ == "__main__":
    sys.exit(main())

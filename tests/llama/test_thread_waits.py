"""How llama.cpp's threads wait for each other, in every process that decodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest


def spin_count(**variables: str) -> str:
    """Return the spin count that GCC's OpenMP reports when a new process loads llama.cpp."""
    hidden = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", "import specchat.llama.library"],
        env={**environment, "OMP_DISPLAY_ENV": "VERBOSE", **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)
    if found is None:
        pytest.skip("llama.cpp was not built with GCC's OpenMP")
    return found[1]


def test_threads_spin_shortly_in_any_process() -> None:
    """Decoding in this process, as `check` and `doctor` do, leaves cores to other programs too."""
    assert spin_count() == "1000"


@pytest.mark.parametrize("variables", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}])
def test_the_user_decides_how_threads_wait(variables: dict[str, str]) -> None:
    """What the environment already says is kept."""
    assert spin_count(**variables) != "1000"

"""How llama.cpp's threads wait for each other, in every process that decodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

LOAD = "import specchat.llama.library"
ENGINE = """
import specchat.llama
specchat.llama.num_processors = lambda: 4
specchat.llama.let_threads_spin({threads})
"""
"""What an engine's process does first, here with four processors."""


def spin_count(before: str = "", **variables: str) -> str:
    """Return the spin count that GCC's OpenMP reports when a new process loads llama.cpp."""
    hidden = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}
    environment = {name: text for name, text in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", before + LOAD],
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


def test_threads_spin_longer_where_processors_stay_idle() -> None:
    """Other programs then run on those; with all processors in use they spin shortly."""
    longer, shortly = (spin_count(ENGINE.format(threads=threads)) for threads in (2, 4))

    assert int(longer) > int(shortly) == 1000


def test_longer_spins_are_not_forced_on_a_user() -> None:
    """What the environment already says is kept in an engine's process too."""
    assert spin_count(ENGINE.format(threads=2), GOMP_SPINCOUNT="7") == "7"

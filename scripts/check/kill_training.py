"""Kill a training of the demo's draft at ten random moments, and check what each kill costs.

After each, the checkpoint must load, and be younger than one interval and the time of one save.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

KILLS = 10
INTERVAL = 4.0
LONGEST_LIFE = 10.0
SLACK = 3.0
"""Seconds that a step and a save may take."""
COMMAND = f"""
import sys
from specchat.cli import main
from specchat.derivation import train_method
train_method.INTERVAL, train_method.LEAST_ANSWERS = {INTERVAL}, 80
sys.exit(main(["derive", "demo", "--train", "1h", "--threads", "2", "--ctx", "512"]))
"""


def main() -> int:
    """Kill and resume; return 1 if a kill cost more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    chance = random.Random(parser.parse_args().seed)
    with TemporaryDirectory() as folder:
        os.environ.update(XDG_CACHE_HOME=f"{folder}/cache", XDG_DATA_HOME=f"{folder}/data")
        steps = 0
        for number in range(1, KILLS + 1):
            before = steps
            life, lost = killed(Path(folder), chance)
            state = torch.load(checkpoint(Path(folder)), weights_only=True)
            steps = state["progress"][0]
            is_fine = steps > before and lost <= INTERVAL + SLACK
            print(
                f"kill {number} after {life:.1f} s of training: {before} -> {steps} steps,"
                f" {lost:.1f} s lost{'' if is_fine else ': TOO MUCH'}",
                flush=True,
            )
            if not is_fine:
                return 1
    return 0


def checkpoint(folder: Path) -> Path:
    """Return the checkpoint; a path that does not exist before the first."""
    return next(folder.glob("cache/specchat/training/*/head.pt"), folder / "none")


def saved(folder: Path) -> float:
    """Return when the checkpoint was last written, 0 before the first."""
    place = checkpoint(folder)
    return place.stat().st_mtime if place.exists() else 0.0


def killed(folder: Path, chance: random.Random) -> tuple[float, float]:
    """Train until a random moment after the first save; return the life since, and what is lost."""
    old = saved(folder)
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while saved(folder) == old and process.poll() is None:
            time.sleep(0.05)
        began = time.time()
        time.sleep(chance.uniform(0.0, LONGEST_LIFE))
        os.killpg(process.pid, signal.SIGKILL)
        now = time.time()
    return now - began, now - saved(folder)


if __name__ == "__main__":
    sys.exit(main())

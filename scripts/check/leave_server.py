"""Leave `specchat serve` at random moments, and kill its engine, and check that nothing is lost.

    python scripts/check/leave_server.py [--leave 200] [--kill 50] [--seed 1]

Clients leave while they wait, while their prompt is read, in streams and in whole replies, while an
answer is verified; every third time others keep the engine busy. Prints how long the next request
waited for the engine. Then the engine is killed under four clients: the answer in progress gets one
error, the others go on, the next request works. Exits with 1 if anything else happens, or if the
server has gained a file, a thread, a connection or a process. Linux only.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from scripts.support.server_load import Failed, kill_often, leave_often, require_no_gain, settled
from scripts.support.server_process import ServerProcess

WARM_UP = 10
"""What a first use of each part leaves behind is no gain."""


def main() -> int:
    """Leave and kill, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leave", type=int, default=200)
    parser.add_argument("--kill", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="specchat-leave-") as folder,
        ServerProcess(Path(folder)) as server,
    ):
        try:
            _leave(server, arguments.leave, arguments.seed)
            _kill(server, arguments.kill, arguments.seed)
            return server.end_and_report()
        except Failed as problem:
            print(problem, file=sys.stderr)
            return 1


def _leave(server: ServerProcess, rounds: int, seed: int) -> None:
    leave_often(server, WARM_UP, seed)
    before = settled(server)
    waits = leave_often(server, rounds, seed + 1)
    after = settled(server)
    require_no_gain(before, after)
    median, most = statistics.median(waits), max(waits)
    print(f"{rounds} clients left; the next request waited {median:.1f} ms, {most:.1f} ms at most")
    print(f"  before {before}\n  after  {after}", flush=True)


def _kill(server: ServerProcess, rounds: int, seed: int) -> None:
    kill_often(server, 2, seed)
    before = settled(server)
    ended = kill_often(server, rounds, seed + 1)
    after = settled(server)
    require_no_gain(before, after)
    print(f"{rounds} deaths of the engine; requests: {dict(ended)}")
    print(f"  before {before}\n  after  {after}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

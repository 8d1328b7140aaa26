"""Send odd requests to all endpoints of `specchat serve`, and check how it takes them.

    python scripts/check/fuzz_server.py [--count 500] [--seed 1]

Wrong types at every field, huge and missing numbers, nesting, text that is not UTF-8, names of
control tokens, odd headers, methods and paths, bodies that are cut or longer than they say. No
reply may be a 5xx but 503, every error must have the shape of its API, no internal error may be
logged, and a normal request must be answered afterwards. Exits with 1 otherwise.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.server_fuzz import fuzz
from scripts.support.server_process import ServerProcess


def main() -> int:
    """Send all requests and print what was not taken well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=positive, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="specchat-fuzz-") as folder,
        ServerProcess(Path(folder)) as server,
    ):
        began = time.monotonic()
        found = fuzz(server.address, arguments.seed, arguments.count)
        print(
            f"{arguments.count} requests in {time.monotonic() - began:.1f} s, {len(found)} faults"
        )
        if not server.chat(max_tokens=4)["choices"]:
            found.append("no answer afterwards")
        if code := server.end():
            found.append(f"it ended with exit code {code}")
        found += server.complaints()
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

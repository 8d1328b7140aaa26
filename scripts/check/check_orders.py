"""Check that answers decoded together are those alone, in whatever order their requests arrive.

    python scripts/check/check_orders.py [--orders 200] [--requests 4 8] [--at-once 4] [--seed 1]
        [--exact on auto] [--architectures llama gemma3 ...] [--target FILE [--draft FILE]]

Requests arrive at random times: greedy and with seeds, with and without drafts and a grammar, with
common beginnings; some are given up. Their texts are compared with those alone. By default on tiny
models of eight architectures: dense, with a sliding window, recurrent, hybrid, and a mixture of
experts. Prints a line for each: the texts that are the same, and those that part. Exits with 1 if
one fails, does not end, or parts with `--exact on`.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.random_orders import alone, in_random_order, requests
from scripts.support.tiny_gguf import ARCHITECTURES, HALF_RIGHT, write_model
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.sharing.shared_engine import SharedEngine

FINE = {"the same", "given up"}
PARTS = "another text"


def main() -> int:
    """Check all models and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=positive, default=200)
    parser.add_argument("--requests", type=positive, nargs="+", default=[4, 8])
    parser.add_argument("--at-once", type=positive, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exact", nargs="+", default=["on", "auto"], choices=("on", "auto", "off"))
    parser.add_argument("--architectures", nargs="+", default=[*ARCHITECTURES])
    parser.add_argument("--target", type=Path)
    parser.add_argument("--draft", type=Path)
    options = parser.parse_args()
    print(f"{machine_line()}; {options.orders} orders, {options.at_once} at once")
    print("| model | exact | requests | texts | of them | seconds |")
    print("| --- | --- | ---: | ---: | --- | ---: |", flush=True)
    is_wrong = False
    with tempfile.TemporaryDirectory(prefix="specchat-orders-") as folder:
        for name in [""] if options.target else options.architectures:
            target, draft = options.target, options.draft
            if name:
                target, draft = (
                    Path(folder) / f"{name} {kind}.gguf" for kind in ("target", "draft")
                )
                shape: dict[str, Any] = {"num_layers": 2, "context_length": 2048}
                write_model(target, name, **shape)
                write_model(draft, name, perturb=HALF_RIGHT[name], **shape)
            for exact in options.exact:
                given: dict[str, Any] = {"ctx": 512, "threads": 1, "learn": False, "exact": exact}
                loading = Loading(target, draft, at_once=options.at_once, **given)
                for count in options.requests:
                    found = checked(loading, count, options)
                    is_wrong |= bool(found.keys() - FINE - ({PARTS} if exact != "on" else set()))
    return int(is_wrong)


def checked(loading: Loading, count: int, options: argparse.Namespace) -> Counter[str]:
    """Ask one engine in all orders, print a line, and return how the answers ended."""
    began, chance, found = time.monotonic(), random.Random(options.seed), Counter[str]()
    engine = SharedEngine(lambda _: LocalEngine(loading))
    try:
        facts = engine.wait_until_loaded()
        engine.call(lambda owned: owned.prepare(only_exactness=True))
        asked = requests(count)
        wanted = alone(engine, asked)
        for _ in range(options.orders):
            found += in_random_order(engine, asked, wanted, chance)
    finally:
        engine.close()
    ends = ", ".join(f"{number} {end}" for end, number in found.most_common())
    seconds = time.monotonic() - began
    row = (facts.target, loading.exact, count, found.total(), ends, f"{seconds:.0f}")
    print(f"| {' | '.join(map(str, row))} |", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())

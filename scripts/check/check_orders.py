"""Check that answers decoded together are those alone, in whatever order their requests arrive.

    python scripts/check/check_orders.py [--orders 200] [--requests 4 8] [--at-once 4] [--seed 1]
        [--exact on auto] [--architectures llama gemma3 ...] [--target FILE [--draft FILE]]
        [--seconds 60]

Requests arrive at random times: greedy and with seeds, with and without drafts and a grammar, with
common beginnings and longer than a window; some are given up, and some answers are followed by two
questions at once. Their texts are compared with those that another engine of the same model gives
alone. By default on tiny models of eight architectures: dense, with a sliding window, recurrent,
hybrid, and a mixture of experts. Prints a line for each: the texts that are the same, and those
that part. Where one parts, logits are compared: they must be a near tie, as in `specchat check`.
Exits with 1 if a text parts otherwise, one fails or does not end, or parts with `--exact on`. With
--seconds, each line ends after that time.
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
from scripts.support.eager_engine import EagerEngine
from scripts.support.lone_answers import LoneAnswers
from scripts.support.machine_line import machine_line
from scripts.support.random_orders import FINE, NEAR_TIE, in_random_order, requests
from scripts.support.tiny_gguf import ARCHITECTURES, HALF_RIGHT, write_model
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.sharing.shared_engine import SharedEngine


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
    parser.add_argument("--seconds", type=positive, help="end each line after that time")
    options = parser.parse_args()
    print(f"{machine_line()}; {options.orders} orders, {options.at_once} at once")
    print("| model | exact | requests | orders | texts | of them | seconds |")
    print("| --- | --- | ---: | ---: | ---: | --- | ---: |", flush=True)
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
                given: dict[str, Any] = {"ctx": 1024, "batch": 64, "threads": 1, "exact": exact}
                given |= {"learn": False, "at_once": options.at_once}
                loading = Loading(target, draft, **given)
                for count in options.requests:
                    found = checked(loading, count, options)
                    is_wrong |= bool(found.keys() - FINE - ({NEAR_TIE} if exact != "on" else set()))
    return int(is_wrong)


def checked(loading: Loading, count: int, options: argparse.Namespace) -> Counter[str]:
    """Ask one engine in all orders, print a line, and return how the answers ended."""
    began, chance, found = time.monotonic(), random.Random(options.seed), Counter[str]()
    engine, alone = SharedEngine(lambda _: EagerEngine(loading)), LocalEngine(loading)
    num_orders, asked = 0, requests(count)
    try:
        facts = engine.wait_until_loaded()
        engine.call(lambda owned: owned.prepare(only_exactness=True))
        alone.prepare(only_exactness=True)
        wanted = LoneAnswers(alone)
        while num_orders < options.orders:
            found += in_random_order(engine, asked, wanted, chance)
            num_orders += 1
            if options.seconds and time.monotonic() - began > options.seconds:
                break
    finally:
        engine.close()
        alone.close()
    ends = ", ".join(f"{number} {end}" for end, number in found.most_common())
    seconds = time.monotonic() - began
    row = (facts.target, loading.exact, count, num_orders, found.total(), ends, f"{seconds:.0f}")
    print(f"| {' | '.join(map(str, row))} |", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())

"""Simulate pacing on machines whose passes were measured, beside the best constant draft length.

Each answer is decoded in a process of its own, as `ask` does: what is known is kept, and passes are
measured once the first answer is over. Times have noise and stalls; what is compared is the time
that the passes take without them, so the result does not depend on this machine.

    python scripts/measure/simulate_pacing.py [--seeds N] [--answers N] [--tokens N]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from itertools import product
from unittest.mock import patch

from scripts.support.counts import positive
from scripts.support.simulated_pair import (
    CHANGE_ON_H200,
    MACHINES,
    ORIGIN,
    USUAL,
    NoisyMachine,
    always,
    best_constant,
    measured,
    told,
    unsure,
)
from specchat.pacing import pacer as pacing
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 9, 12, 15)
CHANCES, SURE = (0.02, 0.4, 0.6, 0.75, 0.9), (0.3, 0.8)
"""Texts of which each token is accepted with a chance that the confidence does not tell, and those
of which a share is nearly sure, as it does tell."""


def machine_of(name: str, draft_cost: float, share: float, tells: bool, seed: int) -> NoisyMachine:
    """Return a pair on a machine, with one of the texts."""
    chances, confidences = told(seed, share) if tells else (always(share), unsure)
    change = CHANGE_ON_H200 if name == "H200" else 0.0
    return NoisyMachine(MACHINES[name], draft_cost, chances, seed, confidences, change=change)


def series(
    make: Callable[[int], NoisyMachine], name: str, seed: int, options: argparse.Namespace
) -> list[float]:
    """Return the tokens per second of a pair's answers."""
    machine, record, rates = make(seed), None, []
    for number in range(options.answers):
        pair = Knowledge(record, USUAL[name])
        if number == 1:
            measured(machine, pair)
        with patch.object(pacing, "perf_counter", machine.clock):
            pacer = LearningPacer(pair, is_greedy=True, pass_origin=ORIGIN)
            pacer.expects_drafting(10)
            rates.append(machine.decode(pacer, options.tokens))
        record = pair.as_record()
    return rates


def main() -> None:
    """Print a row for each machine, draft and text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=positive, default=4)
    parser.add_argument("--answers", type=positive, default=12)
    parser.add_argument("--tokens", type=positive, default=128)
    options = parser.parse_args()
    print("| machine | a draft pass | text | best constant / plain | first answer | others |")
    print("| --- | --- | --- | --- | --- | --- |")
    texts = [
        (share, tells) for tells, shares in ((False, CHANCES), (True, SURE)) for share in shares
    ]
    for name, draft_cost, (share, tells) in product(MACHINES, (0.1, 0.25), texts):
        make = partial(machine_of, name, draft_cost, share, tells)
        text = f"{share:.0%} {'nearly sure' if tells else 'accepted'}"
        best = best_constant(make, LENGTHS)
        rates = [series(make, name, seed, options) for seed in range(options.seeds)]
        first = statistics.mean(answers[0] for answers in rates) / best
        others = (
            statistics.mean(rate for answers in rates for rate in answers[1:] or answers) / best
        )
        gain = best * MACHINES[name][1]
        print(
            f"| {name} | {draft_cost:g} | {text} | {gain:.2f} | {first:.2f} | {others:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

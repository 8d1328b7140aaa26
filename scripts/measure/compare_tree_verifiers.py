"""Compare exact verifiers of draft trees with side branches, on recorded p and q.

    python scripts/measure/compare_tree_verifiers.py                          # the demo pair
    python scripts/measure/compare_tree_verifiers.py TARGET.gguf DRAFT.gguf [--drafter head]

The pair answers questions with a fixed draft length; the distributions of each step are recorded,
of the drafter along its draft, the trunk, and of the target. All verifiers then run on the same
steps, each with siblings of its own kind and as many of them: `even`, as many at each fork; by
`value`, the product of the drafter's probabilities along the path; and `filled`, as many draws with
replacement as give so many distinct siblings on average. Prints the tokens emitted per
target pass, with the standard error of the gain over the trunk alone in the same steps, and the
time of a step's verification: 16 nodes, 40 candidates of a vocabulary of 150,000 in each row.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, cycle, islice
from operator import mul
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scripts.support.counts import positive
from scripts.support.demo_questions import QUESTIONS
from scripts.support.held_out_prompts import held_out_prompts
from scripts.support.machine_line import machine_line
from scripts.support.tree_verifiers import (
    Fork,
    TreeVerifier,
    chosen_fork,
    drawn_fork,
    mixed_fork,
    repeated_fork,
    verify_by_rejection,
    verify_by_selection,
    verify_by_traversal,
    verify_chosen,
    verify_trunk,
)
from specchat.catalogue.pairs import find_pair
from specchat.decoding import request
from specchat.decoding.distribution import Distribution, Random
from specchat.decoding.proposal import DraftToken
from specchat.decoding.verification import TargetAt, Verdict
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.formats.chat_message import ChatMessage

VOCABULARY, CANDIDATES, TIMED_NODES = 150_000, 40, 16
TIMED_STEPS = 400
MOST_DRAWS = 60
"""With replacement at a fork: a likely token is drawn again and again."""

MakeFork: TypeAlias = Callable[[Distribution, int, int, Random], Fork]
Shape: TypeAlias = Callable[["Step", int], Sequence[int]]
"""How many of a number of siblings to put at each fork of a step."""

METHODS: dict[str, tuple[TreeVerifier, MakeFork]] = {
    "chosen siblings, block verification": (verify_chosen, chosen_fork),
    "K-SEQ (SpecTr)": (verify_by_selection, repeated_fork),
    "recursive rejection": (verify_by_rejection, drawn_fork),
    "traversal": (verify_by_traversal, drawn_fork),
    "traversal, one drawn, others chosen": (verify_by_traversal, mixed_fork),
}


class Step(NamedTuple):
    """A recorded step: the trunk, the drafter's distributions at its places, and the target's.

    The target has one more, behind the whole trunk.
    """

    trunk: tuple[int, ...]
    proposed: tuple[Distribution, ...]
    wanted: tuple[Distribution, ...]

    def after(self, path: tuple[int, ...]) -> Distribution:
        """Return the target's distribution after a path.

        Behind a sibling it was not recorded: only one more token is drawn there, whichever it is.
        """
        length = len(path)
        return self.wanted[length] if path == self.trunk[:length] else self.wanted[-1]

    def draft(self, make: MakeFork, counts: Sequence[int], random: Random) -> list[Fork]:
        """Return the trunk with so many siblings at each fork."""
        places = zip(self.proposed, self.trunk, counts, strict=True)
        return [make(proposed, token, count, random) for proposed, token, count in places]


@contextmanager
def recorded(steps: list[Step], length: int) -> Iterator[None]:
    """Record the steps with drafts of this length that decoding verifies."""
    names = vars(request)
    verify = names["verify_by_block"]

    def recording(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
        if len(draft) == length:
            tokens = tuple([each.token for each in draft])
            proposed = tuple([each.distribution for each in draft])
            steps.append(Step(tokens, proposed, tuple(map(target, range(length + 1)))))
        verdict: Verdict = verify(draft, target, random)
        return verdict

    names["verify_by_block"] = recording
    try:
        yield
    finally:
        names["verify_by_block"] = verify


def record(
    engine: LocalEngine, temperature: float, length: int, options: argparse.Namespace
) -> list[Step]:
    """Answer questions, and return the steps."""
    kinds = held_out_prompts().values()
    held_out = [each for prompts in zip(*kinds, strict=False) for each in prompts]
    steps: list[Step] = []
    with recorded(steps, length):
        for question in islice(cycle(held_out if options.models else QUESTIONS), options.texts):
            message: ChatMessage = {"role": "user", "content": question}
            for _ in engine.chat(
                [message], drafter=options.drafter, draft_length=length, temperature=temperature,
                top_k=options.top_k, top_p=1.0, min_p=0.0, max_tokens=options.tokens,
            ):  # fmt: skip
                pass
    return steps


def evenly(step: Step, count: int) -> Sequence[int]:
    """Return as many siblings for each fork, one more for the first ones."""
    forks = len(step.trunk)
    return [(count + forks - 1 - place) // forks for place in range(forks)]


def by_value(step: Step, count: int) -> Sequence[int]:
    """Return how many of the most valuable siblings are at each fork.

    The value is the product of the drafter's probabilities along the path, as in EAGLE-2 (Li et
    al. 2024, arXiv 2406.16858).
    """
    places = zip(step.proposed, step.trunk, strict=True)
    reached = accumulate([q.probability(token) for q, token in places], mul, initial=1.0)
    values = [
        (reach * share, place)
        for place, (reach, q, token) in enumerate(
            zip(reached, step.proposed, step.trunk, strict=False)
        )
        for each, share in q.likeliest(count + 1)
        if each != token
    ]
    kept = [place for _, place in sorted(values, reverse=True)[:count]]
    return [kept.count(place) for place in range(len(step.trunk))]


def filled(step: Step, num_siblings: int) -> Sequence[int]:
    """Return as many draws with replacement for each fork as give that many siblings on average.

    They depend on the drafter's distributions alone. There are at most MOST_DRAWS.
    """
    counts = []
    for proposed, wanted in zip(step.proposed, evenly(step, num_siblings), strict=True):
        shares = proposed.weights
        counts.append(0)
        while counts[-1] < MOST_DRAWS and _num_distinct(shares, counts[-1] + 1) < wanted + 1:
            counts[-1] += 1
    return counts


def _num_distinct(shares: NDArray[np.float64], num_draws: int) -> float:
    """Return the mean number of distinct tokens among so many draws."""
    return float((1.0 - (1.0 - shares) ** num_draws).sum())


SHAPES: dict[str, Shape] = {"even": evenly, "value": by_value, "filled": filled}


def emitted(
    steps: Sequence[Step],
    method: tuple[TreeVerifier, MakeFork],
    counts: Sequence[Sequence[int]],
    repeats: int,
    seed: int = 1,
) -> tuple[NDArray[np.float64], float]:
    """Return the mean number of tokens that each step emits, and the mean number of nodes."""
    verify, make = method
    random = np.random.default_rng(seed).random
    means, num_nodes = np.zeros(len(steps)), 0
    for place, (step, each) in enumerate(zip(steps, counts, strict=True)):
        for _ in range(repeats):
            draft = step.draft(make, each, random)
            means[place] += 1 + len(verify(draft, step.after, random).path)
            num_nodes += sum(fork.num_nodes for fork in draft)
    return means / repeats, num_nodes / repeats / len(steps)


def compare(steps: Sequence[Step], num_siblings: int, repeats: int) -> None:
    """Print a row for each shape and verifier."""
    none = [[0] * len(step.trunk) for step in steps]
    base, num_nodes = emitted(steps, (verify_trunk, chosen_fork), none, repeats)
    print(f"| {num_nodes:.1f} | | trunk alone, block verification | {base.mean():.3f} | |")
    for shape, divide in SHAPES.items():
        counts = [divide(step, num_siblings) for step in steps]
        for name, method in METHODS.items():
            # A shape that depends on the trunk is not exact with replacement, and without
            # replacement there are as many siblings as draws.
            if (method[1] is repeated_fork) != (shape == "filled") and shape != "even":
                continue
            found, num_nodes = emitted(steps, method, counts, repeats)
            error = (found - base).std() / len(steps) ** 0.5 / base.mean()
            ratio = f"{found.mean() / base.mean():.3f} ± {error:.3f}"
            cells = f"{num_nodes:.1f} | {shape} | {name} | {found.mean():.3f} | {ratio}"
            print(f"| {cells} |", flush=True)


def made_up(generator: np.random.Generator, length: int) -> Step:
    """Return a step with made-up distributions that agree about as much as a good pair's."""

    def table(tokens: NDArray[np.int64], logits: NDArray[np.float64]) -> Distribution:
        order = np.argsort(-logits)
        return Distribution.of_table(tokens[order].tolist(), np.exp(logits[order]).tolist())

    proposed, wanted, trunk = [], [], []
    for _ in range(length + 1):
        tokens = generator.choice(VOCABULARY, CANDIDATES + 10, replace=False)
        logits = generator.normal(0.0, 2.5, tokens.size)
        theirs = logits + generator.normal(0.0, 1.0, tokens.size)
        wanted.append(table(tokens[:CANDIDATES], logits[:CANDIDATES]))
        proposed.append(table(tokens[-CANDIDATES:], theirs[-CANDIDATES:]))
        trunk.append(proposed[-1].sample(generator.random))
    return Step(tuple(trunk[:length]), tuple(proposed[:length]), tuple(wanted))


def fresh(step: Step) -> Step:
    """Return a copy whose distributions remember nothing of earlier work."""

    def copied(rows: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return tuple([Distribution.of_table(*row.table) for row in rows if row.table])

    return Step(step.trunk, copied(step.proposed), copied(step.wanted))


def time_methods(length: int) -> None:
    """Print how long a step of each verifier takes, in microseconds."""
    generator = np.random.default_rng(1)
    random = generator.random
    steps = [made_up(generator, length) for _ in range(TIMED_STEPS)]
    counts = evenly(steps[0], TIMED_NODES - length)
    print(
        f"\n{TIMED_NODES} nodes, {CANDIDATES} candidates of {VOCABULARY}; median and 95th"
        " percentile in microseconds a step\n"
    )
    print("| verifier | siblings | verification | 95th percentile |\n| --- | --- | --- | --- |")
    trunk = {"trunk alone, block verification": (verify_trunk, chosen_fork)}
    for name, (verify, make) in {**trunk, **METHODS}.items():
        drawing, verifying = list[float](), list[float]()
        for step in map(fresh, steps):
            began = time.perf_counter()
            draft = step.draft(make, counts, random)
            drawn = time.perf_counter()
            verify(draft, step.after, random)
            drawing.append(1e6 * (drawn - began))
            verifying.append(1e6 * (time.perf_counter() - drawn))
        late = statistics.quantiles(verifying, n=20)[-1]
        cells = f"{statistics.median(drawing):.0f} | {statistics.median(verifying):.0f}"
        print(f"| {name} | {cells} | {late:.0f} |", flush=True)


def tree(text: str) -> tuple[int, int]:
    """Read a trunk's length and a number of siblings: 4+12."""
    length, _, siblings = text.partition("+")
    return positive(length), positive(siblings)


def main() -> None:
    """Record, compare and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL", help="target and draft")
    parser.add_argument("--drafter", choices=("model", "head"), default="model")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.8])
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--texts", type=positive, default=40)
    parser.add_argument("--tokens", type=positive, default=96)
    parser.add_argument("--nodes", type=tree, nargs="+", default=[(4, 4), (4, 12)])
    parser.add_argument("--repeats", type=positive, default=20)
    parser.add_argument("--threads", type=positive, default=2)
    options = parser.parse_args()
    demo = find_pair("demo")
    target, draft = options.models or (demo.target, demo.draft)
    print(machine_line())
    with LocalEngine(Loading(target, draft, ctx=1024, threads=options.threads)) as engine:
        for temperature in options.temperature:
            for length, num_siblings in options.nodes:
                steps = record(engine, temperature, length, options)
                overlap = statistics.mean(
                    1.0 - step.wanted[0].excess_mass(step.proposed[0]) for step in steps
                )
                print(
                    f"\ntemperature {temperature:g}, top-k {options.top_k}: {len(steps)} steps"
                    f" whose first p and q overlap by {overlap:.2f}; trunk of {length} and"
                    f" {num_siblings} siblings\n"
                )
                print("| nodes | siblings | verifier | tokens per pass | to the trunk |")
                print("| --- | --- | --- | --- | --- |")
                compare(steps, num_siblings, options.repeats)
    time_methods(options.nodes[-1][0])


if __name__ == "__main__":
    main()

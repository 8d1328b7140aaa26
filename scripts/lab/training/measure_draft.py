"""Measure a draft on prompts held out from its training, with its target.

Prints the share of first drafted tokens that are accepted, at temperature 0 and at 0.8 (block
verification, as without a seed), for each kind of prompt; and the cost of a draft pass in target
passes. Run it on two quiet cores.
"""

import argparse
from pathlib import Path

from scripts.support.held_out_prompts import held_out_prompts
from specchat.derivation.derived_files import measured_costs
from specchat.engine import Engine
from specchat.engine.api import Loading
from specchat.formats.chat_message import ChatMessage
from specchat.gguf.draft_kinds import kind_of_file
from specchat.gguf.reader import read_header

DRAFT_LENGTH = 4
NUM_TOKENS = 128
TEMPERATURES = (0.0, 0.8)


def main() -> None:
    """Measure the draft that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1, help="of all prompts, above temperature 0")
    options = parser.parse_args()
    loading = Loading(options.target, options.draft, threads=options.threads)
    prompts = held_out_prompts()
    drafter = kind_of_file(read_header(options.draft)).sort
    with Engine.load(target=loading.target, draft=loading.draft, threads=options.threads) as engine:
        engine.prepare()
        for temperature in TEMPERATURES:
            runs = options.runs if temperature else 1
            measure_acceptance(engine, prompts, drafter, temperature, runs)
    costs = measured_costs(loading, options.draft)
    share, first = (costs.draft[length] / costs.target[1] for length in (1, 3))
    print(
        f"of a target pass of {costs.target[1] * 1e3:.2f} ms, a draft pass costs {share:.3f};"
        f" with three accepted tokens to read first, {first:.3f}"
    )


def measure_acceptance(
    engine: Engine, prompts: dict[str, list[str]], drafter: str, temperature: float, runs: int
) -> None:
    """Print the share of first drafted tokens that are accepted, in all runs together."""
    drafted = kept = 0
    for kind, texts in prompts.items():
        counts = [first_tokens(engine, text, drafter, temperature) for text in runs * texts]
        of_kind, kept_of_kind = (sum(each) for each in zip(*counts, strict=True))
        print(f"  {kind:10} {kept_of_kind / of_kind:.3f} of {of_kind}", flush=True)
        drafted, kept = drafted + of_kind, kept + kept_of_kind
    print(f"temperature {temperature:g}: {kept / drafted:.3f} of {drafted} first drafted tokens")


def first_tokens(engine: Engine, text: str, drafter: str, temperature: float) -> tuple[int, int]:
    """Return how many drafts an answer had, and of how many the first token was accepted."""
    question: ChatMessage = {"role": "user", "content": text}
    for _ in engine.chat(
        [question],
        drafter=drafter,
        draft_length=DRAFT_LENGTH,
        temperature=temperature,
        max_tokens=NUM_TOKENS,
    ):
        pass
    drafted = engine.stats.drafted_by_position
    return (drafted[0] if drafted else 0), sum(engine.stats.acceptance_histogram[1:])


if __name__ == "__main__":
    main()

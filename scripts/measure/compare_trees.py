"""Compare draft trees with chains of the same draft passes: tokens per target pass.

    python scripts/measure/compare_trees.py                              # the demo pair
    python scripts/measure/compare_trees.py TARGET.gguf DRAFT.gguf [--json FILE]

Answers the same prompts with and without side branches, at fixed draft lengths, at temperature 0,
above it, and above it with seeds. Prints the tokens per target pass of both, their ratio with the
interval that holds it 95 times in 100 (bootstrap over the prompts), the nodes of a tree, the draft
passes of a step, and, with `--plain`, how many texts of the chain and of the tree differ from plain
decoding's: at temperature 0 and with seeds only rounding makes them.

The prompts are held out from the training of drafts, unless a file is named that has one on each
line. Ctrl+C ends it early, with the prompts answered by then.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from unittest.mock import patch

import numpy as np

from scripts.support.held_out_prompts import held_out_prompts
from scripts.support.tree_record import Place, hit_rates, recording
from specchat import Engine
from specchat.catalogue.pairs import find_pair
from specchat.decoding import fixed_pacer
from specchat.formats.chat_message import ChatMessage
from specchat.gguf.draft_kinds import kind_of_file
from specchat.gguf.reader import read_header

RESAMPLED = 2000
INTERVAL = (2.5, 97.5)
HEADER = (
    "| sampling | draft length | first accepted | chain | tree | ratio (95 %) | nodes |"
    " draft passes, chain and tree | texts that differ |\n" + 9 * "| --- " + "|"
)


@dataclass
class Runs:
    """What one way of drafting did with all prompts; an entry a prompt."""

    emitted: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    first: list[tuple[int, int]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    @property
    def tokens_per_pass(self) -> float:
        """Emitted tokens per target pass."""
        return sum(self.emitted) / sum(self.steps)

    @property
    def agreement(self) -> float:
        """How often the first token of a draft was accepted."""
        kept, drafted = (sum(each) for each in zip(*self.first, strict=True))
        return kept / drafted if drafted else 0.0


@dataclass
class Cell:
    """A way of sampling with one draft length, and what chains and trees did."""

    name: str
    temperature: float
    has_seed: bool
    length: int
    chain: Runs = field(default_factory=Runs)
    tree: Runs = field(default_factory=Runs)


def answer(
    engine: Engine, prompt: str, runs: Runs, tree: int | Literal["off"], length: int,
    temperature: float, seed: int | None, options: argparse.Namespace,
) -> None:  # fmt: skip
    """Answer a prompt and add what was counted."""
    message: ChatMessage = {"role": "user", "content": prompt}
    with recording(with_places=bool(options.json)) as record:
        chunks = engine.chat(
            [message], drafter=options.drafter if length else "none",
            draft_length=length or "auto", draft_tree=tree,
            temperature=temperature, seed=seed, max_tokens=options.tokens,
        )  # fmt: skip
        runs.texts.append("".join(chunk.text for chunk in chunks))
    stats = engine.stats
    runs.emitted.append(stats.generated_tokens)
    runs.steps.append(stats.steps)
    runs.nodes.append(stats.nodes)
    runs.passes.append(record.num_passes)
    drafted = stats.drafted_by_position
    runs.first.append((sum(stats.acceptance_histogram[1:]), drafted[0] if drafted else 0))
    runs.places += record.places


def interval(tree: Runs, chain: Runs) -> tuple[float, float]:
    """Return the interval of the ratio of tokens per pass, over samples of the prompts."""
    random = np.random.default_rng(0)
    count = len(tree.steps)
    rows = np.array(
        [each[:count] for each in (tree.emitted, tree.steps, chain.emitted, chain.steps)]
    )
    picked = random.integers(count, size=(RESAMPLED, count))
    emitted, steps, other, other_steps = rows[:, picked].sum(-1)
    low, high = np.percentile(emitted / steps / (other / other_steps), INTERVAL)
    return float(low), float(high)


def row(cell: Cell, plain: Sequence[str]) -> str:
    """Return a row of the table; `plain` are the texts of plain decoding, if they can be equal."""
    chain, tree = cell.chain, cell.tree
    low, high = interval(tree, chain)
    ratio = tree.tokens_per_pass / chain.tokens_per_pass
    nodes = sum(tree.nodes) / sum(tree.steps)
    passes = [sum(each.passes) / sum(each.steps) for each in (chain, tree)]
    differ = [
        sum(own != other for own, other in zip(each.texts, plain, strict=False))
        for each in (chain, tree)
        if plain
    ]
    return (
        f"| {cell.name} | {cell.length} | {chain.agreement:.2f} | {chain.tokens_per_pass:.3f}"
        f" | {tree.tokens_per_pass:.3f} | {ratio:.3f} ({low:.3f} to {high:.3f})"
        f" | {nodes:.1f} | {passes[0]:.2f}, {passes[1]:.2f}"
        f" | {', '.join(map(str, differ)) or '-'} of {len(tree.steps)} |"
    )


def ways(options: argparse.Namespace) -> Iterator[tuple[str, float, bool]]:
    """Yield the ways of sampling: a name, the temperature, and whether seeds are used."""
    yield "temperature 0", 0.0, False
    if options.temperature:
        yield f"temperature {options.temperature:g}", options.temperature, False
        yield f"{options.temperature:g} with seeds", options.temperature, True


def prompts_of(path: Path | None, count: int) -> Sequence[str]:
    """Return the prompts, the kinds of the held-out ones in turn."""
    if path:
        return path.read_text("utf-8").splitlines()[:count]
    kinds = held_out_prompts().values()
    return [text for texts in zip(*kinds, strict=True) for text in texts][:count]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL", help="target and draft")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 3, 4, 6])
    parser.add_argument("--nodes", type=int, default=16, help="the most tokens of a tree")
    parser.add_argument("--siblings", type=int, help="branches beside a token, if not as usual")
    parser.add_argument("--tokens", type=int, default=96, help="the longest answer")
    parser.add_argument("--temperature", type=float, default=0.8, help="beside 0; 0: none")
    parser.add_argument("--prompts", type=Path, metavar="FILE", help="one prompt on each line")
    parser.add_argument("--count", type=int, default=40, help="the most prompts")
    parser.add_argument("--plain", action="store_true", help="decode plainly, too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--flash-attention", choices=["auto", "on", "off"], default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was drafted here")
    return parser.parse_args()


def main() -> None:
    """Compare all lengths in all ways of sampling, printing each as it is done."""
    options = parse_arguments()
    demo = find_pair("demo")
    target, draft = options.models or [Path(each) for each in (demo.target, demo.draft) if each]
    options.drafter = kind_of_file(read_header(draft)).sort
    prompts = prompts_of(options.prompts, options.count)
    cells = [
        Cell(name, temperature, has_seed, length)
        for name, temperature, has_seed in ways(options)
        for length in options.lengths
    ]
    plain = {name: Runs() for name, _, _ in ways(options)}
    siblings = fixed_pacer.NUM_SIBLINGS if options.siblings is None else options.siblings
    with (
        patch.object(fixed_pacer, "NUM_SIBLINGS", siblings),
        suppress(KeyboardInterrupt),  # what there is by then is printed
        Engine.load(
            target, draft, ctx=1024, threads=options.threads, learn=False, exact="off",
            flash_attention=options.flash_attention,
        ) as engine,
    ):  # fmt: skip
        engine.prepare()
        for number, prompt in enumerate(prompts):
            engine.forget()
            answer_all(engine, prompt, number, cells, plain, options)
            print(f"{number + 1} of {len(prompts)}", end="\r", file=sys.stderr, flush=True)
    print(HEADER)
    for cell in cells:
        print(row(cell, plain[cell.name].texts), flush=True)
    if options.json:
        report_places(cells, options.json)


def answer_all(
    engine: Engine, prompt: str, number: int, cells: Sequence[Cell], plain: dict[str, Runs],
    options: argparse.Namespace,
) -> None:  # fmt: skip
    """Answer a prompt in all ways; a way that does not finish leaves no trace."""
    for name, temperature, has_seed in ways(options):
        if options.plain and (has_seed or not temperature):
            seed = number if has_seed else None
            answer(engine, prompt, plain[name], "off", 0, temperature, seed, options)
    for cell in cells:
        common = cell.length, cell.temperature, number if cell.has_seed else None, options
        answer(engine, prompt, cell.chain, "off", *common)
        answer(engine, prompt, cell.tree, options.nodes, *common)


def report_places(cells: Sequence[Cell], path: Path) -> None:
    """Print how often branches are right where the draft is wrong, and write all places."""
    print(
        "\n| sampling, draft length | places | 1st, 2nd, 3rd branch right where the draft is not |"
    )
    print("| --- | --- | --- |")
    found = {f"{cell.name}, {cell.length}": cell.tree.places for cell in cells}
    for name, places in found.items():
        rates = ", ".join(f"{rate:.3f}" for rate in hit_rates(places))
        print(f"| {name} | {len(places)} | {rates} |")
    path.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()

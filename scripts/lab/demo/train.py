"""Train the demo pair and write target.gguf and draft.gguf.

The text is made by `corpus`, the vocabulary is learnt from it, the target learns the text, and the
draft model learns to say what the target would say. Work in progress is kept, so that the same
command goes on where it was interrupted.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from gguf import GGMLQuantizationType
from tokenizers import Tokenizer

from scripts.lab.demo.batches import Batches
from scripts.lab.demo.corpus import normalised
from scripts.lab.demo.fitting import (
    Fitting,
    Loss,
    Plan,
    distillation_loss,
    next_token_loss,
    stacked,
)
from scripts.lab.demo.gguf_file import write_gguf
from scripts.lab.demo.network import Network, Shape
from scripts.lab.demo.questions import QUESTIONS
from scripts.lab.demo.vocabulary import SIZE, gguf_vocabulary, train_tokenizer

SEED = 20
TARGET = Shape(vocabulary=SIZE, width=384, layers=10, heads=6, kv_heads=3, feed_forward=1152)
DRAFT = Shape(vocabulary=SIZE, width=192, layers=1, heads=3, kv_heads=3, feed_forward=512)
SHALLOW_PLAN = Plan(steps=450, rate=2e-3, first_batch=0, cooldown_share=0.01)
DEEP_PLAN = Plan(steps=460, rate=2e-3, first_batch=1_000_000, warmup=30, cooldown_share=0.5)
POLISH_PLAN = Plan(steps=60, rate=6e-4, first_batch=3_000_000, warmup=5, cooldown_share=1.0)
DRAFT_PLAN = Plan(steps=300, rate=4e-3, first_batch=2_000_000, cooldown_share=0.5)

REPOSITORY = Path(__file__).resolve().parents[3]


def main() -> None:
    """Run every part in turn."""
    options = _options()
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(options.work / "tokenizer.json")
    target = _train_target(tokenizer, options)
    draft = _train_draft(target, tokenizer, options)
    vocabulary = gguf_vocabulary(tokenizer)
    options.out.mkdir(parents=True, exist_ok=True)
    for network, role, matrix_type in (
        (target, "target", GGMLQuantizationType.Q4_0),
        (draft, "draft", GGMLQuantizationType.Q8_0),
    ):
        write_gguf(
            options.out / f"{role}.gguf",
            network,
            vocabulary,
            name=f"specchat demo {role}",
            description="A small demo of speculative decoding; it knows specchat and little else.",
            matrix_type=matrix_type,
            embedding_type=GGMLQuantizationType.Q8_0,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build" / "demo")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "specchat" / "catalogue" / "demo")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="share of the steps, for a quick try"
    )
    return parser.parse_args()


def _train_target(tokenizer: Tokenizer, options: argparse.Namespace) -> Network:
    """Half the layers first, at half the cost; then all of them; then the finer points."""
    torch.manual_seed(SEED)
    shallow = Network(replace(TARGET, layers=TARGET.layers // 2))
    _fit(shallow, SHALLOW_PLAN, _batches(tokenizer), options, "shallow")
    target = stacked(shallow, Network(TARGET))
    _fit(target, DEEP_PLAN, _batches(tokenizer, "wordings"), options, "deep")
    _fit(target, POLISH_PLAN, _batches(tokenizer, "wordings", "polish"), options, "target")
    return target.eval()


def _train_draft(target: Network, tokenizer: Tokenizer, options: argparse.Namespace) -> Network:
    torch.manual_seed(SEED + 1)
    draft = Network(DRAFT)
    loss = distillation_loss(target)
    _fit(draft, DRAFT_PLAN, _batches(tokenizer, "wordings"), options, "draft", loss)
    return draft.eval()


def _batches(tokenizer: Tokenizer, *wordings: str) -> Batches:
    held_out = frozenset(normalised(question.text) for question in QUESTIONS)
    return Batches(tokenizer, held_out, wordings)


def _fit(
    network: Network,
    plan: Plan,
    batches: Batches,
    options: argparse.Namespace,
    name: str,
    loss: Loss = next_token_loss,
) -> None:
    plan = replace(plan, steps=max(1, round(plan.steps * options.scale)))
    Fitting(network, plan, batches, loss, options.work / f"{name}.pt").run()


if __name__ == "__main__":
    main()

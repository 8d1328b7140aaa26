"""Make a target's draft in one go: sample answers in PyTorch, then `specchat derive --train`.

The command alone does the same with llama.cpp, which is slower where PyTorch has matrix units. Both
keep answers in the same folder, so each goes on where the other ended.
"""

import argparse
import random
import sys
from functools import partial
from pathlib import Path
from time import monotonic
from unittest.mock import patch

import torch

from scripts.support.llama_in_torch import Target, Wave, is_plain
from scripts.support.prompt_waves import wanted
from specchat.cli import derive
from specchat.cli import main as command
from specchat.derivation import distillation
from specchat.derivation.answer_sampling import (
    LENGTH,
    LONGEST_PROMPT,
    text_of,
)
from specchat.derivation.answer_store import AnswerStore
from specchat.derivation.derived_files import deriving_alone
from specchat.derivation.draft_format import can_have_head, head_layers
from specchat.derivation.example_prompts import ExamplePrompts
from specchat.derivation.train_method import TrainRequest, work_folder
from specchat.errors import SpecchatError
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.origin import fingerprint
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from specchat.system.private_files import make_private


def main() -> int:
    """Sample, then train; return the command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--sample", type=float, default=60.0, metavar="MINUTES")
    parser.add_argument("--train", type=float, default=60.0, metavar="MINUTES")
    parser.add_argument(
        "--begin", type=float, default=0.0, metavar="SHARE",
        help="where in the schedule of learning rates to begin, to go on gently",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    if options.sample:
        torch.set_num_threads(options.threads)
        with deriving_alone():
            sample(options.target, 60 * options.sample)
    words = ["--train", f"{options.train:g}m", "--threads", str(options.threads), "--keep-slower"]
    step = distillation.Distillation.step

    def later_step(self: object, batches: object, share: float) -> float:
        begin = options.begin
        return step(self, batches, begin + (1.0 - begin) * share)  # type: ignore[arg-type]

    with (
        patch.object(derive, "TrainRequest", partial(TrainRequest, with_sampling=False)),
        patch.object(distillation.Distillation, "step", later_step),
    ):
        return command(["derive", str(options.target), *words])


def sample(target: Path, seconds: float) -> None:
    """Sample answers for some time; what is there already is the seed."""
    header, began = read_whole_model(target), monotonic()
    if not can_have_head(header) or not is_plain(header):
        raise SpecchatError(f"{header.name} is not evaluated here: use `specchat derive --train`")
    work = work_folder(header, fingerprint(header))
    make_private(work)
    layers = head_layers(header)
    store = AnswerStore(work, inputs_width=len(layers) * header.own("embedding_length"))
    seed, count = len(store.training), 0
    network, chance = Target(target, layers), torch.Generator().manual_seed(seed)
    with Model(target, ModelOptions()) as model:
        prompts = ExamplePrompts(seed)
        waves = wanted(model, prompts, random.Random(seed))
        while monotonic() - began < seconds:
            answers = next(waves)
            Wave(network, answers, LENGTH - LONGEST_PROMPT).sample(
                model.vocabulary.end_tokens, chance
            )
            kept = []
            for each in answers:
                if each.origin is None:
                    prompts.ask(text_of(model, each).strip() or "?")
                else:
                    prompts.learn(each.origin, text_of(model, each))
                    kept.append(each)
            if kept:
                store.add(kept)
            count += sum(len(each.tokens) for each in kept)
            print(f"{monotonic() - began:.0f} s: {count} tokens of answers", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""Check that llama.cpp reads the pair as training meant it: the same tokens and the same logits."""

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from scripts.lab.demo.corpus import Corpus, render
from scripts.lab.demo.llama_model import LlamaModel
from scripts.lab.demo.network import Network
from scripts.lab.demo.train import DRAFT, REPOSITORY, TARGET

STRANGE = "Zürich, naïve 東京 🙂\t\ttabs  two   spaces\n\n\nlines 12345 it's we'LL \x00\x7f don't"
NUM_TEXTS = 2_000


def num_different_tokens(model: LlamaModel, tokenizer: Tokenizer) -> int:
    """How many corpus texts llama.cpp cuts differently."""
    corpus = Corpus(99)
    texts = [render(turns) for turns in itertools.islice(corpus.dialogues(), NUM_TEXTS)]
    texts += [*itertools.islice(corpus.plain_texts(), 100), STRANGE]
    return sum(model.tokens(text) != tokenizer.encode(text).ids for text in texts)


def print_logits_gap(name: str, model: LlamaModel, network: Network, tokens: list[int]) -> None:
    """Compare the logits of both programs; quantization changes them little."""
    with torch.no_grad():
        wanted = network(torch.tensor([tokens]), torch.arange(len(tokens))[None])[0].numpy()
    model.cut(0)
    found = model.evaluate(tokens, len(tokens))
    gap = np.abs(found - wanted).mean()
    same = (found.argmax(-1) == wanted.argmax(-1)).mean()
    print(f"{name}: mean gap {gap:.4f}, spread {wanted.std():.2f}, same first choice {same:.3f}")


def main() -> None:
    """Compare both models with their checkpoints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=REPOSITORY / "build" / "demo")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / "specchat/catalogue/demo")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.work / "tokenizer.json"))
    text = render(next(Corpus(7).dialogues()))
    for name, shape in (("target", TARGET), ("draft", DRAFT)):
        model = LlamaModel(options.folder / f"{name}.gguf", threads=1)
        network = Network(shape)
        network.load_state_dict(torch.load(options.work / f"{name}.pt")["network"])
        print(f"{name}: {num_different_tokens(model, tokenizer)} texts tokenised differently")
        print_logits_gap(name, model, network.eval(), tokenizer.encode(text).ids)


if __name__ == "__main__":
    main()

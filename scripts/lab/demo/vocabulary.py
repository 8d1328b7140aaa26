"""The byte-level BPE vocabulary that target and draft model share."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from scripts.lab.demo.corpus import CONTROL_TOKENS, TURN_END, Corpus, render
from scripts.lab.demo.gguf_file import Vocabulary

SIZE = 3072
SEED = 1
NUM_DIALOGUES = 30_000
NUM_PLAIN_TEXTS = 3_000


def train_tokenizer(path: Path) -> Tokenizer:
    """Learn the merges from the corpus, unless the file is already there."""
    if path.exists():
        return Tokenizer.from_file(str(path))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=CONTROL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.save(str(path))
    return tokenizer


def gguf_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The same vocabulary in the form that GGUF wants."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return Vocabulary(tokens, merges, CONTROL_TOKENS, TURN_END)


def _texts() -> Iterator[str]:
    corpus = Corpus(SEED)
    for turns in itertools.islice(corpus.dialogues(), NUM_DIALOGUES):
        yield render(turns)
    yield from itertools.islice(corpus.plain_texts(), NUM_PLAIN_TEXTS)

"""Rows of tokens for training: dialogues packed one after another, every token with a weight."""

import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from scripts.lab.demo.corpus import TURN_END, TURN_START, Corpus, Turn

TOKENS_PER_BATCH = 4096
SHORT_ROW, LONG_ROW = 512, 2048
LONG_SHARE = 0.15
PLAIN_FIRST_SHARE, PLAIN_SHARE = 0.15, 0.05
QUESTION_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs, the tokens that follow them, and how much each of those counts."""

    tokens: Tensor
    targets: Tensor
    weights: Tensor

    @property
    def positions(self) -> Tensor:
        """The place of every token in its row."""
        return torch.arange(self.tokens.shape[1]).expand(self.tokens.shape)


class Batches:
    """Makes the batch of a given number, the same one every time."""

    def __init__(
        self, tokenizer: Tokenizer, held_out: frozenset[str], wordings: tuple[str, ...] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._held_out = held_out
        self._wordings = wordings

    def make(self, number: int) -> Batch:
        """Batch `number`, from a seed of its own."""
        rng = random.Random(number)
        corpus = Corpus(rng.randrange(2**62), self._held_out, self._wordings)
        length = LONG_ROW if rng.random() < LONG_SHARE else SHORT_ROW
        rows = [self._row(corpus, length + 1, rng) for _ in range(TOKENS_PER_BATCH // length)]
        tokens = torch.tensor([row[0] for row in rows])
        weights = torch.tensor([row[1] for row in rows])
        return Batch(tokens[:, :-1], tokens[:, 1:], weights[:, 1:])

    def _row(
        self, corpus: Corpus, length: int, rng: random.Random
    ) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        weights: list[float] = []
        dialogues, texts = corpus.dialogues(), corpus.plain_texts()
        while len(tokens) < length:
            plain = rng.random() < (PLAIN_SHARE if tokens else PLAIN_FIRST_SHARE)
            pieces = [(next(texts) + TURN_END, 1.0)] if plain else self._pieces(next(dialogues))
            for text, weight in pieces:
                ids = self._tokenizer.encode(text).ids
                tokens += ids
                weights += [weight] * len(ids)
        return tokens[:length], weights[:length]

    @staticmethod
    def _pieces(turns: list[Turn]) -> list[tuple[str, float]]:
        pieces = []
        for turn in turns:
            weight = 1.0 if turn.role == "assistant" else QUESTION_WEIGHT
            pieces.append((f"{TURN_START}{turn.role}\n", QUESTION_WEIGHT))
            pieces.append((f"{turn.content}{TURN_END}", weight))
            pieces.append(("\n", QUESTION_WEIGHT))
        return pieces

"""What a prediction head expects along its target's texts, as it gets there while drafting."""

from collections.abc import Sequence

from specchat.decoding.ports import LanguageModel
from specchat.derivation.gain import Guess, guesses_of
from specchat.derivation.sampled_texts import Text
from specchat.options.declarations import Sampling

NUM_POSITIONS = 4
"""Tokens of a draft that are looked at; those behind are as good as the last of them."""


def head_guesses(
    target: LanguageModel, head: LanguageModel, texts: Sequence[Text], sampling: Sampling
) -> tuple[list[Guess], list[list[Guess]]]:
    """Return what a target wants along texts, and what its head offers, by position in a draft.

    At each place the head drafts a few tokens of the text as if they had been its own, from the
    target's hidden state and then from its own. Raises as `LanguageModel.evaluate` does.
    """
    wanted: list[Guess] = []
    offered: list[list[Guess]] = [[] for _ in range(NUM_POSITIONS)]
    for tokens, count in texts:
        first = len(tokens) - count
        target.prefill(tokens[: first - 1])
        drafts = []
        for index in range(first, len(tokens)):
            drafts.append(_draft(head, tokens, index, sampling))
            wanted += guesses_of(target.evaluate(tokens[index - 1 : index], 1), sampling)
        for number in range(count):
            for position, guesses in enumerate(offered):
                begin = number - min(position, number)  # a draft cannot begin before the answer
                guesses.append(drafts[begin][number - begin])
    return wanted, offered


def _draft(
    head: LanguageModel, tokens: Sequence[int], position: int, sampling: Sampling
) -> list[Guess]:
    """Return the head's guesses at a position and behind it, then roll back what it read."""
    guesses: list[Guess] = []
    head.rollback(head.count_known(tokens[: position - 1]))
    for end in range(position, min(position + NUM_POSITIONS, len(tokens))):
        guesses += guesses_of(head.evaluate(tokens[head.length : end], 1), sampling)
    head.rollback(position - 1)
    return guesses

"""The guesses of a prediction head along its target's texts, made as it would while drafting."""

from collections.abc import Sequence

from specchat.decoding.ports import LanguageModel
from specchat.derivation.gain import Guess, guesses_of
from specchat.derivation.sampled_texts import Text
from specchat.options.declarations import Sampling

NUM_POSITIONS = 4
"""How many tokens of a draft are looked at; later ones count like the last of these."""


def head_guesses(
    target: LanguageModel, head: LanguageModel, texts: Sequence[Text], sampling: Sampling
) -> tuple[list[Guess], list[list[Guess]]]:
    """Return a target's guesses along texts, and those of its head by position in a draft.

    At each position the head drafts a few tokens, reading those of the text as if it had drafted
    them: the first from the target's hidden state, the others from its own. Raises as
    `LanguageModel.evaluate` does.
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
    """Return the head's guesses from a position on, and roll back the tokens it read for them."""
    guesses: list[Guess] = []
    head.rollback(head.count_known(tokens[: position - 1]))
    for end in range(position, min(position + NUM_POSITIONS, len(tokens))):
        guesses += guesses_of(head.evaluate(tokens[head.length : end], 1), sampling)
    head.rollback(position - 1)
    return guesses

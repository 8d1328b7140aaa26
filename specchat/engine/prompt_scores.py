"""Scores a given text: the tokens that the model finds likely at each position."""

from collections.abc import Sequence

from specchat.decoding.chunk import Alternative
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.errors import ContextFull
from specchat.llama.context import Context


def scored(context: Context, tokens: Sequence[int], count: int) -> list[tuple[Alternative, ...]]:
    """Return up to `count` likely tokens, and the given token itself, for each given token.

    The first one has none. The text is read from the beginning, in passes of as many tokens as a
    pass can give logits for.
    """
    if len(tokens) > context.capacity:
        raise ContextFull(
            f"the prompt has {len(tokens)} tokens and the context holds {context.capacity}:"
            " shorten it or choose a larger context with --ctx"
        )
    own, vocabulary = OwnProbabilities(), context.model.vocabulary
    scores: list[tuple[Alternative, ...]] = [()]
    context.prefill([])
    most = context.longest_draft + 1
    for start in range(0, len(tokens) - 1, most):
        following = tokens[start + 1 : start + 1 + most]
        rows = context.evaluate(tokens[start : start + len(following)], len(following))
        for row, token in zip(rows, following, strict=True):
            pairs = own.likeliest(row, token, count)
            scores.append(
                tuple(
                    [
                        (other, vocabulary.named_piece(other).decode("utf-8", "replace"), share)
                        for other, share in pairs
                    ]
                )
            )
    return scores

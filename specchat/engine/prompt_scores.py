"""What a model thinks of a given text: its likely tokens in the place of each one."""

from collections.abc import Sequence

from specchat.decoding.chunk import Alternative
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.errors import ContextFull
from specchat.llama.context import Context


def scored(context: Context, tokens: Sequence[int], count: int) -> list[tuple[Alternative, ...]]:
    """Return up to `count` likely tokens and the token itself, for each of the given tokens.

    The first one has none. The memory is read anew, in passes of as many tokens as give logits.
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
                        (token, vocabulary.named_piece(token).decode("utf-8", "replace"), share)
                        for token, share in pairs
                    ]
                )
            )
    return scores

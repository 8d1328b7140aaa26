"""Scores a given text: the tokens that the model finds likely at each position."""

from collections.abc import Iterator, Sequence

from specchat.decoding.chunk import Alternative
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.llama.context import Context


def scores(
    context: Context, tokens: Sequence[int], count: int
) -> Iterator[list[tuple[Alternative, ...]]]:
    """Yield up to `count` likely tokens, and the given token itself, for each that is read.

    The text goes on behind what the memory holds of it, in passes of as many tokens as a pass can
    give logits for. The tokens of a pass are yielded together; nothing precedes the first of all.
    """
    own, vocabulary = OwnProbabilities(), context.model.vocabulary
    most = context.longest_draft + 1
    for start in range(context.length, len(tokens) - 1, most):
        following = tokens[start + 1 : start + 1 + most]
        rows = context.evaluate(tokens[start : start + len(following)], len(following))
        yield [
            tuple(
                [
                    (other, vocabulary.named_piece(other).decode("utf-8", "replace"), share)
                    for other, share in own.likeliest(row, token, count)
                ]
            )
            for row, token in zip(rows, following, strict=True)
        ]

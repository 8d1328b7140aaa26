"""Passes that several texts share: the model's weights are read once for all of them.

Each text has a cache of its own (llama.cpp's streams), so a row's bits do not depend on the others,
as long as a pass has no more rows in all than the longest exact one. llama.cpp computes such a pass
at once only if the texts follow each other in the context and each has as many tokens in it; what
is left takes passes of its own within it. So shorter parts are padded where that is faster, and the
padding can be removed again without another pass.

In a hybrid's memory such a pass moves the states of texts, but not the earlier ones that they step
back to. So a hybrid's pass is never divided, and the texts that took no part in it cannot step back
within their last pass any more. One that was not finished leaves them without their state, too, so
they go back to a saved one; a memory that has none, and may be such a hybrid's, is read again.
"""

from collections.abc import Callable, Sequence

from specchat.decoding.draft_passes import TargetPass
from specchat.decoding.ports import Rows
from specchat.llama.batch import SequencesBatch
from specchat.llama.text_memory import TextMemory


class JointPasses:
    """The shared passes of a context's texts."""

    def __init__(
        self,
        texts: Sequence[TextMemory],
        seconds: Callable[[int], float],
        apart: Callable[[int, int], float] = lambda *_: 0.0,
    ) -> None:
        """Prepare for texts of one context, each a sequence of its own.

        `seconds` returns what a pass takes by its number of tokens, in whatever unit, and `apart`
        the seconds of one by its number of tokens and the depth of its text, 0 if not known.
        """
        self._texts, self._seconds, self._apart = texts, seconds, apart
        self._native = texts[0].native
        self.most_rows = self._native.chunk
        self._batch = SequencesBatch(self._native.chunk, 1)
        kinds = [text.rollback_kind for text in texts]
        self._pads = all(kind.is_free for kind in kinds)
        self._steps_back = any(kind.pads_together for kind in kinds)
        self._most_steps = texts[0].shape.num_steps_back if self._steps_back else self.most_rows
        self._padded: list[TextMemory] = []

    def may_join(self, passes: Sequence[TargetPass]) -> bool:
        """Whether passes over texts, in the order of their places, can be made as one."""
        if not self._steps_back:
            return True
        texts, lengths = [_text_of(each) for each in passes], [each.num_tokens for each in passes]
        first = texts[0].sequence
        follow = [text.sequence for text in texts] == list(range(first, first + len(texts)))
        is_short = max(lengths) <= min(text.longest_replay for text in texts)
        return follow and is_short and self._may_pad(texts, lengths, passes)

    def run(self, passes: Sequence[TargetPass]) -> list[Rows]:
        """Make passes over different texts as one; return the rows of each, valid until the next.

        Raises as TextMemory's `evaluate` does; the memories are then as they were.
        """
        texts = [_text_of(each) for each in passes]
        parts = [text.with_missing(each.tokens) for text, each in zip(texts, passes, strict=True)]
        length = self._padded_length(texts, parts, passes)
        tokens, positions, sequences = list[int](), list[int](), list[list[int]]()
        gives_logits, places = list[bool](), list[slice]()
        for text, each, part in zip(texts, passes, parts, strict=True):
            count, first = max(length, len(part)), len(tokens)
            places.append(slice(first, first + len(part)))
            tokens += [*part, *[part[-1]] * (count - len(part))]
            position = text.rollback_kind.positions.at(text.num_evaluated)
            positions += range(position, position + count)
            sequences += [[text.sequence]] * count
            asked = range(len(part) - each.num_rows, len(part))
            every = self._native.gives_all_logits
            gives_logits += [every or index in asked for index in range(count)]
        self._batch.fill_each(tokens, positions, sequences, gives_logits)
        others = [text for text in self._texts if text not in texts]
        try:
            self._native.run(self._batch)
            rows = self._native.logits(sum(gives_logits))
        except BaseException:
            for text, part in zip(texts, parts, strict=True):
                text.undo(max(length, len(part)))
            for text in others:
                text.undo(0)
            raise
        given: list[Rows] = []
        for text, each, part, place in zip(texts, passes, parts, places, strict=True):
            end = sum(gives_logits[: place.stop])
            given.append(rows[end - each.num_rows : end])
            padding = max(length - len(part), 0)
            text.take_part(part, len(each.tokens), place, padding, len(tokens))
        for text in others if self._steps_back else ():
            text.forget_last_pass()
        self._padded = texts
        return given

    def _padded_length(
        self,
        texts: Sequence[TextMemory],
        parts: Sequence[Sequence[int]],
        passes: Sequence[TargetPass],
    ) -> int:
        """Return the length that shorter parts are padded to, 0 to leave them as they are."""
        lengths = [len(part) for part in parts]
        if not self._may_pad(texts, lengths, passes):
            return 0
        longest, count = max(lengths), len(lengths)
        # in texts in a row; those between them that have no more tokens begin another pass
        ragged, done = 0.0, 0
        while done < longest:
            left = [length - done for length in lengths if length > done]
            done += min(left)
            ragged += self._seconds(min(left) * len(left))
        is_faster = self._seconds(count * longest) <= ragged
        return longest if self._steps_back or is_faster else 0

    def _may_pad(
        self, texts: Sequence[TextMemory], lengths: Sequence[int], passes: Sequence[TargetPass]
    ) -> bool:
        """Whether parts of these lengths can be made equally long.

        With the padding, a whole draft must be removed again without another pass.
        """
        longest = max(lengths)
        most = min(self.most_rows // len(lengths), *map(_room, texts))
        removed = [
            longest - length + each.num_rows - 1
            for length, each in zip(lengths, passes, strict=True)
        ]
        return self._pads and longest <= most and max(removed) <= self._most_steps

    def seconds_apart(self, wanted: TargetPass) -> float:
        """Return what a pass would take by itself, 0 if that is not known."""
        return self._apart(wanted.num_tokens, wanted.target.length)

    def settle(self) -> None:
        """Remove the padding, once the drafts of the last pass are rolled back."""
        for text in self._padded:
            text.leave_out_padding()
        self._padded = []


def _text_of(wanted: TargetPass) -> TextMemory:
    if not isinstance(wanted.target, TextMemory) or wanted.branches:
        raise TypeError("only passes over texts without branches can be shared")
    return wanted.target


def _room(text: TextMemory) -> int:
    return text.capacity - text.num_evaluated

"""The draft model as drafter: a smaller model of the same vocabulary runs ahead of the target."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from specchat.decoding.distribution import Random
from specchat.decoding.ports import LanguageModel, Task, TellProgress
from specchat.decoding.proposal import NOTHING, DraftToken, Proposal
from specchat.decoding.sampling import Sampler, Sampling

__all__ = ["DraftModelDrafter"]

STAND_IN = 0
LONGEST_CATCH_UP = 16
"""More tokens than this that the draft model has not seen go through `prefill`, in chunks."""


class DraftModelDrafter:
    """Draws each drafted token from the draft model's processed distribution.

    What the draft model has evaluated stays in its memory and only rejected tokens are rolled back,
    so no token is ever evaluated twice. The last drafted token is not evaluated at all before its
    step is verified: if it is kept, it goes together with the target's own token next time.
    """

    def __init__(
        self, model: LanguageModel, vocabulary: int, end_tokens: Collection[int] = ()
    ) -> None:
        """Take the draft model; ids from `vocabulary` on are never proposed.

        Nothing is drafted after one of the `end_tokens`.
        """
        self._model = model
        self._vocabulary = vocabulary
        self._end_tokens = frozenset(end_tokens)
        self._tokens: list[int] = []
        self._drafted: list[int] = []
        self._sampler = Sampler(Sampling())
        self._random: Random = float

    def begin(self, task: Task, tell: TellProgress | None = None) -> None:
        """Bring the prompt, but for its last token, into the draft model's memory."""
        self._tokens = self._readable(task.tokens)
        self._drafted = []
        self._sampler = Sampler(task.sampling)
        self._random = task.random
        if len(self._tokens) <= self._model.capacity:
            self._model.prefill(self._tokens[:-1], tell)

    def propose(self, limit: int) -> Proposal:
        """Draw up to `limit` tokens, fewer where the draft's context is full or the text ends."""
        limit = min(limit, self._model.capacity - len(self._tokens) + 1)
        if limit < 1:
            return NOTHING
        if len(self._tokens) - self._model.length > LONGEST_CATCH_UP:
            self._model.prefill(self._tokens[:-1])
        draft: list[DraftToken] = []
        pending = self._tokens[self._model.length :]
        past = list(self._sampler.window(self._tokens))
        while len(draft) < limit:
            self._model.mark()
            logits = self._model.evaluate(pending, 1)[0]
            if logits.size > self._vocabulary:
                logits = logits[: self._vocabulary]
            distribution = self._sampler.distribution(logits, past)
            token = distribution.sample(self._random)
            draft.append(DraftToken(token, distribution, "draft"))
            if token in self._end_tokens:
                break
            pending = [token]
            past.append(token)
        self._drafted = [drafted.token for drafted in draft]
        return Proposal(tuple(draft))

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Keep what was right in memory, and roll back the rest to an absolute length."""
        del num_accepted  # a correction may equal the rejected token, so the tokens decide
        num_right = 0
        for right, drafted in zip(emitted, self._drafted, strict=False):
            if right != drafted:
                break
            num_right += 1
        length = len(self._tokens) + num_right
        self._tokens += self._readable(emitted)
        self._drafted = []
        if length < self._model.length:
            self._model.rollback(length)

    def _readable(self, tokens: Sequence[int]) -> list[int]:
        """Put a stand-in for tokens that only the target has: a draft may be wrong, not fail."""
        return [token if token < self._vocabulary else STAND_IN for token in tokens]

    def close(self) -> None:
        """Hold nothing of its own: the model belongs to whoever loaded it."""

"""The protocols of the decoding loop: a model, a drafter and a pacer. Independent of llama.cpp."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict
from specchat.options.declarations import Sampling

Rows: TypeAlias = Sequence[Logits]
"""Rows of logits, each of shape (vocabulary,). Valid until the model evaluates again."""

Draw: TypeAlias = Callable[[Distribution, int], int]
"""Draws a token from a distribution, for an index in the answer: 0 for its first token."""

PromptProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of prompt tokens that are done, and of all of them."""


class LanguageModel(Protocol):
    """A model with a memory of the tokens it evaluated, which can be rolled back."""

    @property
    def capacity(self) -> int:
        """The number of tokens the memory can hold."""

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens of this text are in the memory."""

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many it held already.

        Raises Cancelled if asked to stop; the memory then holds some prefix of the tokens.
        """

    def mark(self) -> None:
        """Allow a rollback to here, or to a later length.

        A rollback clears all marks except the last one that is not beyond its length. Where only
        saved states can be restored, several marks make a rollback between them cheaper.
        """

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens to the memory; return the logits after each of the last `num_rows`.

        Raises Cancelled if asked to stop; the memory is then unchanged.
        """

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, no fewer than at a mark that still holds."""


@dataclass(frozen=True, slots=True)
class DraftTask:
    """What a drafter needs to know of the next answer: prompt, sampling, how to draw.

    Tokens are drawn with `draw`: with a seed it uses the noise that the target uses, so that both
    are likely to draw the same token. `is_soon`: proposals are likely to be wanted from the start,
    so preparing pays. `is_ever`: proposals may be wanted at all.
    """

    tokens: Sequence[int]
    sampling: Sampling
    draw: Draw
    is_soon: bool = True
    is_ever: bool = True


@runtime_checkable
class BlockModel(LanguageModel, Protocol):
    """A model whose pass gives the logits of a block of tokens, which are then evaluated for free.

    The next pass is for up to `room` tokens, at most `longest_block`.
    """

    room: int
    longest_block: int


class Pacer(Protocol):
    """Decides how many tokens to draft, each before it is drawn.

    A drafter that makes a draft pass for each token asks `wants_pass` before the pass and
    `wants_token` before the draw. One whose tokens cost no pass has them counted by `take`. Both
    name their `origin`, so that what is learned of one drafter is not applied to another.

    `needs_confidence` is False if it pays no attention to the confidence of tokens that cost a
    pass, which takes time to find.
    """

    needs_confidence: bool

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted in this step."""

    def expects_drafting(self, depth: int) -> bool:
        """Whether draft passes are likely to pay from the start, after a prompt of this length."""

    def begin_step(self, depth: int, limit: int) -> None:
        """Begin a step after `depth` tokens that may draft up to `limit` tokens."""

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether a draft pass that reads this many tokens is worth its time."""

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Whether to draw and draft the token of the draft pass just made."""

    def take(self, origin: str, hints: Iterable[Hint], rival: str | None = None) -> int:
        """Return how many of these tokens to draft, none of which costs a draft pass.

        Returns 0 if the draft passes of `rival` promise more.
        """

    def learn(self, draft: Sequence[DraftToken], target: TargetAt, verdict: Verdict) -> None:
        """Learn from verification which tokens are accepted."""

    def end_step(self, emitted: Sequence[int], seconds: float) -> float:
        """Learn from a step's emitted tokens, and its time without drafting.

        Returns the seconds that a plain step takes now, 0.0 if unknown.
        """


class Drafter(Protocol):
    """Anything that proposes tokens."""

    def begin(self, task: DraftTask) -> None:
        """Start a new answer."""

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Propose tokens to follow what is there, in order, as many as the pacer wants.

        Whether to draw one more may depend on anything known before that draw, and on nothing else.
        """

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Update with the step's tokens: `num_accepted` drafted ones, then the target's own.

        The target's own token is missing if the answer ended inside the accepted run.
        """

    def close(self) -> None:
        """Free what the drafter holds, by default nothing."""
        return  # without this, mypy takes the method for abstract

"""The protocols of the decoding loop: a model, a drafter and a pacer. Independent of llama.cpp."""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from specchat.decoding.constraint import Walk
from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict
from specchat.options.declarations import Sampling

Rows: TypeAlias = Sequence[Logits]
"""Rows of logits, each of shape (vocabulary,). Valid until the model evaluates again."""

Draw: TypeAlias = Callable[[Distribution, int], int]
"""Draws a token from a distribution, for an index in the answer: 0 for its first token."""

Ranked: TypeAlias = Callable[[Distribution, int, int], Sequence[tuple[int, float]]]
"""Returns the tokens likeliest to be drawn from a distribution for an index in the answer, as many
as wanted, best first, each with a share of certainty."""

PromptProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of prompt tokens evaluated so far, and the number of all."""


class LanguageModel(Protocol):
    """A model with a memory of the tokens it evaluated, which can be rolled back."""

    @property
    def capacity(self) -> int:
        """The number of tokens the memory can hold."""

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""

    @property
    def num_waiting(self) -> int:
        """How many tokens of the text the next pass reads before those it is given."""

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of this text are in the memory."""

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many it already held.

        Raises Cancelled if asked to stop; the memory then holds some prefix of the tokens.
        """

    def mark(self) -> None:
        """Allow a rollback to here, or to a later length.

        A rollback clears all marks except the last one at or before its length. Where only saved
        states can be restored, several marks make a rollback between them cheaper.
        """

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens to the memory; return the logits after each of the last `num_rows`.

        Raises Cancelled if asked to stop; the memory is then unchanged.
        """

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, at least as many as at a valid mark."""


@runtime_checkable
class PausingModel(LanguageModel, Protocol):
    """A model that can read a prompt with pauses, in which it may be used for other texts."""

    def reading(
        self,
        tokens: Sequence[int],
        on_progress: PromptProgress | None,
        is_brief: Callable[[], bool],
    ) -> Generator[None, None, int]:
        """Do what `prefill` does, with a pause after each pass, and return the same.

        Passes are short while `is_brief`: other texts wait for them.
        """


def reading_of(
    model: LanguageModel,
    tokens: Sequence[int],
    on_progress: PromptProgress | None,
    is_brief: Callable[[], bool],
) -> Generator[None, None, int]:
    """Read a prompt as `prefill` does, with pauses if the model allows them; return the same."""
    if isinstance(model, PausingModel):
        return (yield from model.reading(tokens, on_progress, is_brief))
    return model.prefill(tokens, on_progress)


@runtime_checkable
class TreeModel(LanguageModel, Protocol):
    """A model that can read branches beside the tokens of a pass, and keep some of them."""

    @property
    def most_branches(self) -> int:
        """How many branches a pass may have, 0 if the memory cannot hold any."""

    def evaluate_tree(
        self, tokens: Sequence[int], branches: Sequence[tuple[int, int]], num_rows: int
    ) -> Rows:
        """Append tokens, and branches that follow one of them or of each other.

        The rows are the logits after each of the last `num_rows` tokens, then those after each
        branch. A branch is a token and the number of the row that it follows; -1 stands for the
        token before the first row, and so on. Until `keep` is called, branches are in the memory
        but not in its text. Raises as `evaluate` does.
        """

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep the first `length` tokens of the text, which ends with these branches of the pass.

        They follow one another; there may be none of them. All others are forgotten. The next pass
        may read them again.
        """


@runtime_checkable
class RepeatableModel(LanguageModel, Protocol):
    """A model whose memory has other bits if it was filled in other passes."""

    def keep_repeatable(self, tokens: Sequence[int], stops: Sequence[int]) -> int:
        """Drop what would have other bits if these tokens were read from the first one on.

        They would be read up to each of `stops` in turn, then in exact passes. Returns the number
        of tokens that are left.
        """


@dataclass(frozen=True, slots=True)
class DraftTask:
    """What a drafter needs to know about the next answer: prompt, sampling, how to draw.

    Tokens are drawn with `draw`; with a seed it uses the target's noise, so that both are likely to
    draw the same token. `is_soon` means that proposals are likely to be wanted from the start, so
    preparing pays; `is_ever`, that they may be wanted at all; `is_replay`, that the answer is known
    and teaches nothing.

    A token that the `walk` does not allow after those drafted before it is never accepted. A
    drafter that draws tokens does best to mask the distribution first; one whose tokens are certain
    need not look, as a draft is cut before a token that is not allowed. Tokens that must follow a
    draft are appended to it, so a drafter need not make passes for them either.

    Branches beside the draft are of use if `has_branches`; `ranked` returns what could have been
    drawn in place of a token.
    """

    tokens: Sequence[int]
    sampling: Sampling
    draw: Draw
    is_soon: bool = True
    is_ever: bool = True
    is_replay: bool = False
    walk: Walk = field(default_factory=lambda: Walk(None))
    has_branches: bool = False
    ranked: Ranked = lambda distribution, _, count: distribution.likeliest(count)


class BlockModel(LanguageModel, Protocol):
    """A model whose pass gives the logits of a whole block of tokens.

    Evaluating these tokens afterwards costs nothing. The next pass is for up to `room` tokens, at
    most `longest_block`.
    """

    room: int
    longest_block: int


class Pacer(Protocol):
    """Decides how many tokens to draft, for each token before it is drawn.

    A drafter that makes a draft pass for each token calls `wants_pass` before the pass and
    `wants_token` before the draw. A drafter whose tokens cost no pass calls `take`. Both name their
    `origin`, so that what is learned about one drafter is not applied to another.

    `needs_confidence` is False if the pacer ignores the confidence of tokens that cost a pass,
    which takes time to compute.
    """

    needs_confidence: bool

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted in this step."""

    def expects_drafting(self, depth: int) -> bool:
        """Whether draft passes are likely to pay from the start, after a prompt of this length."""

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step after `depth` tokens that may draft up to `limit` tokens.

        Its pass reads `num_forced` tokens more than its draft and the last token, and as many
        answers as `num_sharing` wait for it.
        """

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether a draft pass that reads this many tokens is worth its time."""

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Whether to draw and draft the token of the draft pass just made."""

    def take(self, origin: str, hints: Iterable[Hint], rival: str | None = None) -> int:
        """Return how many of these tokens, which cost no draft pass, to draft.

        Returns 0 if the draft passes of `rival` promise more.
        """

    def make_room(self, num_forced: int) -> None:
        """Reserve room after the draft for this many tokens that a grammar forces."""

    @property
    def num_siblings(self) -> int:
        """How many branches beside each token of a draft are worth finding in this step."""

    def choose_branches(
        self, draft: Sequence[DraftToken], branches: Sequence[Branch], most: int
    ) -> Sequence[int]:
        """Return the numbers of the branches, up to `most`, to verify with a draft.

        A chosen branch always comes with its parent.
        """

    def learn(
        self,
        draft: Sequence[DraftToken],
        target: TargetAt,
        verdict: Verdict,
        branches: Sequence[Branch] = (),
    ) -> None:
        """Learn from a verification which tokens were accepted.

        `branches` are those beside the draft, if some were replaced since they were chosen.
        """

    def end_step(
        self, emitted: Sequence[int], seconds: float, num_drafting: int = 0, num_longest: int = 0
    ) -> None:
        """Learn from the tokens that a step verified or drew, and its time without drafting.

        If answers shared its pass, the time is this one's share, `num_drafting` of them drafted,
        and the longest part of the pass had `num_longest` tokens.
        """


class Drafter(Protocol):
    """Anything that proposes tokens."""

    def begin(self, task: DraftTask) -> None:
        """Start a new answer."""

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Return the next tokens of the text, as many as the pacer wants.

        The decision to draw one more may depend only on what is known before that draw.
        """

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Update with the step's tokens: `num_accepted` drafted ones, then the target's own.

        Branches that were accepted count among the drafted ones.

        The target's own token is missing if the answer ended within the accepted tokens. Tokens
        that a grammar forces follow it; the target has not read them yet.
        """

    def close(self) -> None:
        """Release resources; does nothing by default."""
        return  # without this, mypy considers the method abstract


@runtime_checkable
class ReadingDrafter(Protocol):
    """A drafter whose model reads the prompt: drafters need not."""

    def reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        """Read the prompt if drafts are likely soon, with pauses: called once after `begin`.

        Passes are short while `is_brief`: other texts wait for them.
        """


@runtime_checkable
class Branching(Protocol):
    """A drafter that also knows what else may come: drafters need not."""

    def branches(self) -> Sequence[Branch]:
        """Return the branches beside the last proposal: what may come in place of its tokens.

        Finding them takes no further draft pass.
        """

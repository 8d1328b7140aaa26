"""The request for one answer: its prompt, how to sample it, when it ends, how much to draft."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from numpy.random import default_rng

from specchat.decoding.chunk import Chunk
from specchat.decoding.constraint import Constraint
from specchat.decoding.distribution import Distribution, Random
from specchat.decoding.noise import Noise
from specchat.decoding.replay import Replay
from specchat.decoding.verification import (
    Verifier,
    verify_by_argmax,
    verify_by_block,
    verify_by_noise,
    verify_by_traversal,
    verify_replayed,
)
from specchat.errors import InvalidOption
from specchat.options.declarations import Sampling

NO_SIBLINGS: Mapping[int, Sequence[int]] = MappingProxyType({})
SHORTER_OR_LARGER = "shorten it or choose a larger context with --ctx"


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to decode: the prompt, how to sample, when to stop, and how much to draft.

    With the `noise` of a seed, the text depends on prompt, sampling and target alone; without it,
    tokens are drawn with `random`. The next prompt is expected to share the first `num_shared`
    tokens, so the target can prepare to roll back to there; 0 if unknown. To ends of messages at
    least `state_step` tokens apart it can roll back, too, unless that is 0.

    The answer begins with the tokens of `begun`, steps of an earlier answer, and continues as if it
    had been decoded up to there. Steps record up to `num_alternatives` likely tokens for each one.

    With a `replay` its tokens are emitted, whatever would be drawn, and drafts are accepted as
    often as they were when it was decoded. It takes the place of `max_tokens`. Drafts have branches
    only where those are not drawn: at temperature 0, and with a seed.

    The answer is what `constraint` allows. Tokens that it forces are emitted at once and read with
    the next draft, in passes of at most `longest_pass` tokens; None for any number.

    With `repeats`, equal requests have equal texts: passes of at most `longest_pass` tokens read
    the answer, and what the memory holds is read again unless an empty one would be filled so.

    A draft has up to `draft_length` tokens. With branches beside them, where the target's memory
    can hold any, it has up to `most_nodes` tokens in all.
    """

    tokens: Sequence[int]
    sampling: Sampling
    random: Random = field(default_factory=lambda: default_rng().random)
    noise: Noise | None = None
    draft_length: int = 3
    max_tokens: int | None = None
    end_tokens: Collection[int] = ()
    stop_strings: Sequence[str] = ()
    piece: Callable[[int], bytes] = field(default=lambda _: b"")
    is_cancelled: Callable[[], bool] = lambda: False
    verifier: Verifier | None = None
    num_shared: int = 0
    state_step: int = 0
    if_too_long: str = SHORTER_OR_LARGER
    begun: Sequence[Chunk] = ()
    replay: Replay | None = None
    num_alternatives: int = 0
    constraint: Constraint | None = None
    longest_pass: int | None = None
    repeats: bool = False
    most_nodes: int = 0

    def __post_init__(self) -> None:
        """Raise InvalidOption for a value out of range."""
        if not self.tokens:
            raise InvalidOption("the prompt is empty: give at least one token")
        if self.draft_length < 0:
            raise InvalidOption(f"draft_length must be 0 or more, not {self.draft_length}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidOption(f"max_tokens must be 1 or more, not {self.max_tokens}")
        if self.replay:
            begun, tokens = self.begun_tokens, self.replay.tokens
            is_beginning = list(tokens[: len(begun)]) == begun
            if not is_beginning or not len(begun) < self.replay.end <= len(tokens):
                raise InvalidOption("a replay must go on where the beginning of the answer ends")

    @property
    def begun_tokens(self) -> list[int]:
        """The tokens that the answer begins with."""
        return [token for step in self.begun for token in step.tokens]

    def draw(self, distribution: Distribution, index: int) -> int:
        """Draw a token for an index of the answer; at temperature 0 take the most probable one."""
        if self.noise and len(distribution) > 1:
            return self.noise.draw(distribution, index)
        return distribution.sample(self.random)

    def draw_draft(self, distribution: Distribution, index: int) -> int:
        """Draw a token to draft for an index of the answer.

        In a replay without a seed it is the answer's own token, if that can be drawn.
        """
        token = self.draw(distribution, index)
        if self.replay is None or self.noise:
            return token
        own = self._replayed(index, token)
        return own if distribution.probability(own) else token

    def draw_own(self, distribution: Distribution, index: int) -> int:
        """Draw the target's own token for an index of the answer; in a replay it is known."""
        return self._replayed(index, self.draw(distribution, index))

    def _replayed(self, index: int, token: int) -> int:
        """Return the replayed answer's token at an index, or else the one that was drawn."""
        if self.replay is None or index >= len(self.replay.tokens):
            return token
        return self.replay.tokens[index]

    def ranked(
        self, distribution: Distribution, index: int, count: int
    ) -> Sequence[tuple[int, float]]:
        """Return the tokens likeliest to be drawn for an index of the answer, best first."""
        if self.noise and len(distribution) > 1:
            return self.noise.ranked(distribution, index, count)
        return distribution.likeliest(count)

    def verifier_at(
        self, index: int, siblings: Mapping[int, Sequence[int]] = NO_SIBLINGS
    ) -> Verifier:
        """Return the verifier of a draft whose first token has this index in the answer.

        At temperature 0 it compares with the argmax. Above that, with a seed, noise gives the same
        text whatever is drafted; without a seed, block verification accepts the most, or traversal
        where siblings were drawn. In a replay the text is known.
        """
        usual = self._usual_verifier(index, siblings)
        if self.replay is None:
            return usual
        rest = self.replay.tokens[index:]
        return verify_replayed(usual, rest, is_coupled=self.noise is not None)

    def _usual_verifier(self, index: int, siblings: Mapping[int, Sequence[int]]) -> Verifier:
        if self.verifier or self.sampling.is_greedy:
            return self.verifier or verify_by_argmax
        if self.noise:
            return verify_by_noise(self.noise, index)
        return verify_by_traversal(siblings) if siblings else verify_by_block

    @property
    def draws_siblings(self) -> bool:
        """Whether branches beside a drawn token should be drawn, too; not with a seed."""
        return not (self.verifier or self.noise or self.sampling.is_greedy)

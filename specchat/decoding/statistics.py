"""The statistics of one answer, counted while it is decoded.

`acceptance_histogram` and the rates agree with vLLM's per-request figures of the same names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import zip_longest
from time import perf_counter
from typing import TYPE_CHECKING, Any

from specchat.decoding.step_times import Gain, StepTimes
from specchat.drafter_registry import GRAMMAR, PLAIN

if TYPE_CHECKING:  # NumPy, which front ends do without
    from collections.abc import Sequence

    from specchat.decoding.draft_tree import DraftTree


@dataclass(slots=True)
class Statistics:
    """Counts and seconds of one answer, from which the rates follow.

    `drafter` and `draft_length` are what was used; "auto" is decided step by step.
    `speculation_off_reason` says why nothing is drafted, `draft_off_reason` why the draft model is
    not used, at present or at all, and `short_drafts_reason` why its drafts are shorter than they
    would be with the whole target on GPUs. `pass_costs` has the seconds of a target pass by its
    number of tokens, first at the depth where the answer begins, then where it ends. `left_out`
    counts the oldest messages of a conversation that were left out because the context is full;
    `notices` say what else of the request could not be followed.

    `read_again` counts the tokens of the prompt that were read again, by reason: the text before
    them was "edited", what was read before is "forgotten", a "seed" asks for the same passes, or
    the "model" has not read these turns since it was loaded.

    The prompt has `image_tokens` of images, which are among `prompt_tokens`, and encoding them took
    `image_s` of `prompt_s`, nothing for those that were cached. A draft model that reads them only
    once it drafts takes its part of that in `draft_s`.

    `draft_prompt_s` is the part of `prompt_s` that a prediction head took. The first step, whose
    pass reads the last token of the prompt, took `first_step_s` and emitted `first_step_tokens`;
    both count in the other figures, too. The first
    `reasoning_tokens` of the `generated_tokens` were reasoning, which took `reasoning_s`; they
    count in all other figures.

    `drafted` counts the tokens that were drafted one behind another, `accepted` the accepted ones
    among them, and `by_origin` both by what drafted them; a token decoded again after a checkpoint
    counts once. Of a draft with branches they count the positions, and `nodes` counts all tokens.
    `forced` counts the tokens that a grammar forced, which nothing drafted or verified: an answer
    has one token from each step, the accepted and the forced ones. `repeated` counts the tokens in
    which it said a passage over and over, which its gain leaves out, and `repeating` how many in a
    row were such as of now: 0 once the text goes on. `is_valid` says of an ended
    answer whether it is what its structure asked for, None if it had none; `invalid_reason` says
    why a complete one is not. `acceptance_histogram[i]` is the number of steps that accepted i
    drafted tokens. The steps took `passes` of the target: of one that answers share, each has its
    part. Those that were shared took `joint_s`, and would have taken `apart_s` alone, by what
    passes cost here. `draft_s` is the time of drafting, draws included, `verify_s` that of the
    target's passes; `overhead_s` is everything else between the prompt and the last token. The gain
    over plain decoding is derived from `step_times`.

    An answer that came from another program over HTTP is `served_by` it. Such a program may not
    report all figures: the fields named in `unreported` are unknown. It may report the gain itself.
    """

    drafter: str = PLAIN
    draft_length: int | str = 0
    speculation_off_reason: str | None = None
    draft_off_reason: str | None = None
    short_drafts_reason: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    image_tokens: int = 0
    read_again: dict[str, int] = field(default_factory=dict)
    generated_tokens: int = 0
    reasoning_tokens: int = 0
    reasoning_s: float = 0.0
    steps: int = 0
    passes: float = 0.0
    joint_s: float = 0.0
    apart_s: float = 0.0
    drafted: int = 0
    accepted: int = 0
    nodes: int = 0
    forced: int = 0
    repeated: int = 0
    repeating: int = 0
    is_valid: bool | None = None
    invalid_reason: str = ""
    drafted_by_position: list[int] = field(default_factory=list)
    acceptance_histogram: list[int] = field(default_factory=list)
    by_origin: dict[str, tuple[int, int]] = field(default_factory=dict)
    time_to_first_token_s: float = 0.0
    prompt_s: float = 0.0
    image_s: float = 0.0
    draft_prompt_s: float = 0.0
    decode_s: float = 0.0
    first_step_s: float = 0.0
    first_step_tokens: int = 0
    draft_s: float = 0.0
    verify_s: float = 0.0
    step_times: StepTimes = field(default_factory=StepTimes)
    pass_costs: dict[int, float] = field(default_factory=dict)
    left_out: int = 0
    notices: tuple[str, ...] = ()
    served_by: str = ""
    unreported: tuple[str, ...] = ()
    reported_gain: Gain | None = None

    def time_step(
        self, began: float, drafting: float, verifying: float, held_up: float = 0.0
    ) -> float:
        """Add the time of a step that began at a clock time and ends now, and return it.

        `drafting` and `verifying` are the seconds of it for the draft and the target's pass. The
        first step sets the time to first token, which also has the seconds for which other answers
        held this one up.
        """
        seconds = perf_counter() - began
        self.decode_s += seconds
        self.draft_s += drafting
        self.verify_s += verifying
        if self.steps == 1 and not self.time_to_first_token_s:
            self.time_to_first_token_s = held_up + self.prompt_s + self.decode_s
        if self.steps == 1:
            self.first_step_s, self.first_step_tokens = seconds, self.generated_tokens
        return seconds

    def count_pass(self, seconds: float, num_sharing: int, apart: float) -> None:
        """Count a pass that answers share, and what it would take for this one alone if known."""
        self.passes += 1 / num_sharing
        if apart and num_sharing > 1:
            self.joint_s += seconds / num_sharing
            self.apart_s += apart

    def count_forced(self, count: int) -> None:
        """Count tokens that a grammar forced."""
        self.generated_tokens += count
        self.forced += count

    def count_tree(self, tree: DraftTree, path: Sequence[int], num_emitted: int) -> None:
        """Count a step that accepted these nodes of its draft; its forced tokens count apart.

        Each position counts once: as the token that was accepted there, or else as the drafted one.
        """
        if not (origins := tree.origins):
            self.count_step(0, 0, num_emitted)
            return
        taken = list(map(tree.origin_of, path))
        accepted = [name for name in taken if name != GRAMMAR.name]
        offered = [name for name in origins[: len(tree.draft)] if name != GRAMMAR.name]
        self.nodes += len(offered) + len(tree.branches)
        if tree.branches:  # one may be at a position that the draft does not reach
            offered += origins[-1:] * (tree.depth - len(tree.draft))
        names = [*accepted, *offered[len(accepted) :]]
        num_forced = len(taken) - len(accepted)
        self.count_step(len(names), len(accepted), num_emitted - num_forced, names)
        if num_forced:
            self.count_forced(num_forced)

    def count_step(
        self, num_drafted: int, num_accepted: int, num_emitted: int, origins: Sequence[str] = ()
    ) -> None:
        """Count one step without forced tokens; `origins` are those of the drafted tokens."""
        self.steps += 1
        self.generated_tokens += num_emitted
        self.drafted += num_drafted
        self.accepted += num_accepted
        while len(self.acceptance_histogram) <= num_accepted:
            self.acceptance_histogram.append(0)
        self.acceptance_histogram[num_accepted] += 1
        for position in range(num_drafted):
            if position == len(self.drafted_by_position):
                self.drafted_by_position.append(0)
            self.drafted_by_position[position] += 1
        for position, origin in enumerate(origins):
            drafted, accepted = self.by_origin.get(origin, (0, 0))
            self.by_origin[origin] = drafted + 1, accepted + (position < num_accepted)

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted; 0.0 if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_step(self) -> float:
        """Emitted tokens / steps, forced ones included; 1.0 is plain decoding."""
        return self.generated_tokens / self.steps if self.steps else 0.0

    @property
    def accepted_by_position(self) -> list[float]:
        """Accepted / drafted tokens, for each position in the draft."""
        return [
            sum(self.acceptance_histogram[position:]) / drafted
            for position, drafted in enumerate(self.drafted_by_position, 1)
        ]

    @property
    def overhead_s(self) -> float:
        """Seconds of decoding outside the drafter and the target's passes."""
        return max(0.0, self.decode_s - self.draft_s - self.verify_s)

    @property
    def until_first_step_s(self) -> float:
        """Seconds until the first step was over: reading the whole prompt takes that."""
        return self.prompt_s + self.first_step_s

    @property
    def later_steps_s(self) -> float:
        """Seconds of decoding after the first step."""
        return self.decode_s - self.first_step_s

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second of decoding, without the prompt."""
        return self.generated_tokens / self.decode_s if self.decode_s else 0.0

    @property
    def counted_rate(self) -> float:
        """Tokens per second without passages said over and over, where the times are known."""
        times = self.step_times
        return times.num_tokens / times.seconds if times.seconds else self.tokens_per_second

    @property
    def gain(self) -> Gain:
        """The gain from speculation, as far as it is known."""
        gain = self.reported_gain or self.step_times.gain()
        # drafts of a passage said over and over do not count
        return Gain("measuring") if self.drafted and gain.kind == "plain" else gain

    @property
    def rows(self) -> int:
        """The tokens that the passes of its steps read: drafts, and what precedes them."""
        return self.steps + self.nodes + self.forced

    @property
    def drafted_per_step(self) -> float:
        """Drafted tokens / steps: the average draft length."""
        return self.drafted / self.steps if self.steps else 0.0

    @property
    def speculation(self) -> dict[str, Any]:
        """Whether the answer used speculation, with which drafter, and if not, why."""
        return {
            "on": None if "drafted" in self.unreported else not self.speculation_off_reason,
            "drafter": self.drafter,
            "draft_length": self.draft_length,
            "drafted_per_step": self.drafted_per_step,
            "draft_prompt_s": self.draft_prompt_s,
            "off": self.speculation_off_reason or "",
            "draft_off": self.draft_off_reason or "",
            "short_drafts": self.short_drafts_reason or "",
            **({"served_by": self.served_by} if self.served_by else {}),
        }

    def joined(self, later: Statistics, before_s: float | None = None) -> Statistics:
        """Return the statistics of an answer that was interrupted here and went on later.

        The later part's own facts stay, such as its drafter. The prompt and the time to the first
        token are the first part's, if it got that far. Else that time has the `before_s` seconds
        between the beginnings of both, by default those of reading the prompt.
        """
        if not self.prompt_tokens:
            return later
        goes_on = later.repeating == later.generated_tokens
        first = self if self.steps else later
        before_s = self.prompt_s if before_s is None else before_s
        is_later = bool(later.time_to_first_token_s and not self.generated_tokens)
        return replace(
            later,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            image_tokens=self.image_tokens,
            read_again=self.read_again,
            time_to_first_token_s=(
                before_s + later.time_to_first_token_s if is_later else self.time_to_first_token_s
            ),
            first_step_s=first.first_step_s,
            first_step_tokens=first.first_step_tokens,
            repeating=later.repeating + (self.repeating if goes_on else 0),
            step_times=self.step_times.joined(later.step_times),
            **self._sums(later),
        )

    def plus(self, other: Statistics) -> Statistics:
        """Return the counts and the seconds of this and another answer together."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            **self._sums(other),
        )

    def _sums(self, other: Statistics) -> dict[str, Any]:
        """Return what adds up in any case, by field."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        for name in ("drafted_by_position", "acceptance_histogram"):
            pairs = zip_longest(getattr(self, name), getattr(other, name), fillvalue=0)
            sums[name] = list(map(sum, pairs))
        by_origin = dict(self.by_origin)
        for name, counts in other.by_origin.items():
            drafted, accepted = by_origin.get(name, (0, 0))
            by_origin[name] = drafted + counts[0], accepted + counts[1]
        return {**sums, "by_origin": by_origin}

    def as_dict(self) -> dict[str, Any]:
        """Return the fields of the JSON contract, in its order; None for what is not reported."""
        return {
            name: None if name in self.unreported else getattr(self, name) for name in _CONTRACT
        }


_SUMS = (
    "generated_tokens",
    "reasoning_tokens",
    "reasoning_s",
    "steps",
    "passes",
    "joint_s",
    "apart_s",
    "drafted",
    "accepted",
    "nodes",
    "forced",
    "repeated",
    "prompt_s",
    "image_s",
    "draft_prompt_s",
    "decode_s",
    "draft_s",
    "verify_s",
)
"""The numbers that are summed when the parts of an answer are joined, or several answers."""

_CONTRACT = (
    "prompt_tokens",
    "cached_tokens",
    "image_tokens",
    "read_again",
    "generated_tokens",
    "reasoning_tokens",
    "steps",
    "drafted",
    "accepted",
    "nodes",
    "forced",
    "repeated",
    "acceptance_rate",
    "tokens_per_step",
    "accepted_by_position",
    "acceptance_histogram",
    "time_to_first_token_s",
    "prompt_s",
    "image_s",
    "decode_s",
    "draft_s",
    "verify_s",
    "overhead_s",
    "tokens_per_second",
)

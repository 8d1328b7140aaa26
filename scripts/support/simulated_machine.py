"""A simulated machine with a pair: pass times and accepted tokens, without a clock or a model.

Real pacing decodes with it, so its rates are those that pacing reaches at such costs and chances.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specchat import drafter_registry
from specchat.decoding.distribution import Distribution, Random
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import TargetAt, verify_by_argmax, verify_by_block
from specchat.drafting.draft_model import SHORT_MEMORIES
from specchat.pacing.knowledge import LONGEST_KNOWN, Knowledge
from specchat.passes.pass_measurement import DRAFT_LENGTHS, TARGET_LENGTHS

RIGHT, WRONG = 1, 2
SURE = {token: Distribution.certain(token) for token in (RIGHT, WRONG)}
DEPTH = 10
ORIGIN = drafter_registry.pass_origin("model")


def unsure(_: int) -> float:
    """Return a confidence that carries no information."""
    return 0.8


@dataclass
class SimulatedMachine:
    """A pair on a machine as pacing sees it: the costs of passes, and which tokens are accepted.

    `costs` are the seconds of target passes by their number of tokens, `draft_costs` those of draft
    passes, by default a share of the same, `draft_cost`. `chance` and `confidence` belong to an
    index in the text. What the draft model has not read yet it reads before it drafts, and a head
    reads all accepted tokens with the target's rows.
    """

    costs: Sequence[float]
    draft_cost: float
    chance: Callable[[int], float]
    random_seed: int = 0
    confidence: Callable[[int], float] = unsure
    seconds: float = 0.0
    emitted: int = 0
    num_read: int = 0
    num_passes: int = 0
    drafted: list[int] = field(default_factory=list)
    draft_costs: Sequence[float] = ()
    reads_accepted: bool = False

    def __post_init__(self) -> None:
        """Prepare the randomness."""
        self.random = np.random.default_rng(self.random_seed)

    def clock(self) -> float:
        """Return the time."""
        return self.seconds

    def decode(self, pacer: Pacer, num_tokens: int, longest: int = 16) -> float:
        """Decode with a draft model that knows the prompt; return tokens per second."""
        first, began = self.emitted, self.seconds
        self.num_read = first
        while self.emitted - first < num_tokens:
            pacer.begin_step(DEPTH, min(longest, num_tokens - (self.emitted - first) - 1))
            num_read, draft = 0, list[DraftToken]()
            while self._draft_pass(pacer, 1 if num_read else self.emitted - self.num_read + 1):
                num_read = len(draft) + 1
                confidence, distribution = self.proposed(self.emitted + len(draft))
                hint = Hint(confidence, distribution)
                if not pacer.wants_token(ORIGIN, hint):
                    break
                draft.append(DraftToken(self.drawn(distribution), distribution, ORIGIN))
            self._commit(pacer, draft, num_read)
        return (self.emitted - first) / (self.seconds - began)

    def proposed(self, index: int) -> tuple[float, Distribution]:
        """Return the draft model's confidence and distribution at an index in the text."""
        return self.confidence(index), SURE[RIGHT]

    def drawn(self, distribution: Distribution) -> int:
        """Draw a drafted token."""
        return distribution.best()

    def verify(self, pacer: Pacer, draft: Sequence[DraftToken]) -> int:
        """Verify a draft and let the pacer learn; return the number of accepted tokens."""
        chances = [self.chance(self.emitted + index) for index in range(len(draft) + 1)]
        wanted = [RIGHT if self.random.random() < chance else WRONG for chance in chances]
        return verify_greedily(pacer, len(draft), wanted)

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        return self.costs[length]

    def draft_seconds(self, length: int) -> float:
        """Return the time of a draft pass."""
        measured, more = min(length, LONGEST_KNOWN), max(1.0, length / LONGEST_KNOWN)
        single = self.draft_costs or self.costs
        return single[measured] * more * (1.0 if self.draft_costs else self.draft_cost)

    def take(self, seconds: float) -> float:
        """Let a pass take its time; return what is measured of it."""
        self.seconds += seconds
        return seconds

    def _draft_pass(self, pacer: Pacer, num_pending: int) -> bool:
        """Make a draft pass if it is wanted, over the last tokens only if many were missed."""
        for most in SHORT_MEMORIES:
            num_tokens = min(num_pending, most)
            if pacer.wants_pass(ORIGIN, num_tokens):
                self.num_passes += 1
                self.take(self.draft_seconds(num_tokens))
                return True
        return False

    def _commit(self, pacer: Pacer, draft: Sequence[DraftToken], num_read: int) -> None:
        took = self.take(self.pass_seconds(len(draft) + 1))
        kept = self.verify(pacer, draft)
        if num_read:
            self.num_read = self.emitted + min(kept + 1, 1 if self.reads_accepted else num_read)
        self.emitted += kept + 1
        self.drafted.append(len(draft))
        pacer.end_step([RIGHT] * (kept + 1), took)


def verify_greedily(pacer: Pacer, num_drafted: int, wanted: Sequence[int]) -> int:
    """Verify a draft at temperature 0; return the number of accepted tokens."""
    draft = [DraftToken(RIGHT, SURE[RIGHT], ORIGIN)] * num_drafted
    target = [SURE[token] for token in wanted].__getitem__
    verdict = verify_by_argmax(draft, target, float)
    pacer.learn(draft, target, verdict)
    return verdict.num_accepted


def verify_sampled(
    pacer: Pacer, draft: Sequence[DraftToken], target: TargetAt, random: Random
) -> int:
    """Verify a draft above temperature 0; return the number of accepted tokens."""
    verdict = verify_by_block(draft, target, random)
    pacer.learn(draft, target, verdict)
    return verdict.num_accepted


def measured(machine: SimulatedMachine, pair: Knowledge | None = None) -> Knowledge:
    """Let what is known of a pair be what measuring finds on a machine, and return it."""
    pair = pair or Knowledge()
    pair.reads_accepted = machine.reads_accepted
    pair.target.begin_with({length: machine.costs[length] for length in TARGET_LENGTHS})
    draft_costs = {length: machine.draft_seconds(length) for length in DRAFT_LENGTHS}
    pair.costs_of(ORIGIN).begin_with(draft_costs)
    pair.begin_anew()
    return pair

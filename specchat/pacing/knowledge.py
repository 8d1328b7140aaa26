"""What is known of a pair on a machine: what passes cost, and what drafts brought."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from specchat.options.declarations import LONGEST_DRAFT
from specchat.pacing.calibration import Calibration
from specchat.pacing.recent_drafts import LONGEST, RecentDrafts
from specchat.pacing.recent_seconds import RecentSeconds, SharedSeconds, middle
from specchat.passes.learned_cache import LearnedPair
from specchat.passes.pass_costs import QUANTISED, PassCosts, Stair

LONGEST_KNOWN = LONGEST_DRAFT + 1
"""Passes over up to this many tokens have a measured cost."""
FEW_ACCEPTED = 3
"""The tokens that the first pass of a head's draft is taken to read."""
UNKNOWN_DRAFT_COST = 0.1
"""Assumed cost of a draft pass that was never measured, as a share of a target pass."""
INITIAL_CREDIT, MOST_CREDIT = 3.0, 4.0
"""What looking back may cost at first, and at most, in tokens of plain decoding."""
NUM_CHANGES, FEW_CHANGES, LEAST_CHANGE = 48, 12, 0.05
"""Passes that say what a change of length takes, the least number of each kind that do, and the
least share that is not noise."""
MOST_RATIO = 100.0
"""What a pass may have taken beside what was expected, to be believed of an earlier session."""


@dataclass(frozen=True, slots=True)
class SplitTarget:
    """Why passes of a target with parts on the CPU beside GPUs cost more, in words.

    `on_gpus` has what they would cost with all of it on GPUs, relative to each other.
    """

    cause: str
    on_gpus: PassCosts


class Knowledge:
    """Everything learned of a pair on a machine, kept from answer to answer.

    `target` has what target passes cost, `verifying` what they take now. `reads_accepted` says
    whether the first draft pass of a step reads all tokens that the last step accepted: what a
    prediction head made of them was made of its own rows. `drafts_blocks` says whether a draft pass
    gives a whole draft. `credits` are the tokens of plain decoding that looking back at a
    drafter may cost. `change` is the share of a pass that it takes more after one of another
    length: llama.cpp builds its graph anew, and CUDA launches it kernel by kernel and records it.
    `split` is None unless the target is split between CPU and GPUs.
    """

    split: SplitTarget | None = None

    def __init__(self, record: LearnedPair | None = None, stair: Stair = QUANTISED) -> None:
        """Begin with what an earlier session learned; else costs have the shape of a stair."""
        record = record or LearnedPair()
        self.drafts_blocks = self.reads_accepted = False
        self.longest = LONGEST
        self.target = PassCosts(LONGEST_KNOWN, stair)
        self.target.learn_record(record.target)
        self.verifying: RecentSeconds = RecentSeconds(
            self.target.seconds, lambda: self.target.is_known
        )
        self.credits = defaultdict(lambda: INITIAL_CREDIT)
        for name, credit in record.credits.items():
            if isfinite(credit):
                self.credits[name] = min(max(credit, -MOST_CREDIT), MOST_CREDIT)
        self._changes = [deque[float](maxlen=NUM_CHANGES) for _ in range(2)]
        for ratios, kept in zip(self._changes, record.changes, strict=False):
            ratios.extend(ratio for ratio in kept if 0 < ratio < MOST_RATIO)
        self.change = self._price_of_change()
        self._costs: dict[str, PassCosts] = {}
        self._drafting: dict[str, RecentSeconds] = {}
        for origin, costs in record.drafts.items():
            self.costs_of(origin).learn_record(costs)
        self._drafts = {name: RecentDrafts.of_record(rows) for name, rows in record.recent.items()}
        self._calibrations = {
            name: Calibration(counts) for name, counts in record.calibrations.items()
        }

    def as_record(self) -> LearnedPair:
        """Return what is known, for later sessions."""
        target = {(bucket, size): seconds for bucket, size, seconds in self.target.as_record()}
        kept = self.verifying.worth_keeping() if self.target.is_known else {}
        target |= {
            (bucket, size): seconds
            for (bucket, size), seconds in kept.items()
            if bucket and size <= LONGEST_KNOWN
        }
        return LearnedPair(
            [(*place, seconds) for place, seconds in sorted(target.items())],
            {origin: costs.as_record() for origin, costs in self._costs.items() if costs.is_known},
            {name: drafts.as_record() for name, drafts in self._drafts.items() if len(drafts)},
            {name: counts.as_record() for name, counts in self._calibrations.items()},
            dict(self.credits),
            [[round(ratio, 3) for ratio in ratios] for ratios in self._changes],
        )

    def shared(self, *, always_pads: bool) -> "Knowledge":
        """Return what is known for an answer that shares its passes with others.

        Its share of a pass stands beside its own draft passes, with what a draft adds charged to
        those that draft. What is accepted is learned for all; what passes take now, is not.
        `always_pads` says that no draft gets a pass by itself, however long it is.
        """
        shared = Knowledge()
        shared.longest, shared.target, shared.split = self.longest, self.target, self.split
        shared.drafts_blocks, shared.reads_accepted = self.drafts_blocks, self.reads_accepted
        shared.verifying = SharedSeconds(
            self.target.seconds,
            lambda: self.target.is_known,
            self.verifying,
            always_pads=always_pads,
        )
        shared.credits, shared._costs = self.credits, self._costs  # the same class
        shared._drafts, shared._calibrations = self._drafts, self._calibrations
        return shared

    def begin_anew(self) -> None:
        """Forget what passes took beside what they were taken to cost: that was measured now."""
        self.verifying.begin_anew()
        for drafting in self._drafting.values():
            drafting.begin_anew()
        for ratios in self._changes:
            ratios.clear()
        self.change = self._price_of_change()

    def costs_of(self, origin: str) -> PassCosts:
        """Return the costs of an origin's draft passes, unknown so far if it is new."""
        if origin not in self._costs:
            self._costs[origin] = PassCosts(LONGEST_KNOWN)
        return self._costs[origin]

    def drafts_of(self, name: str) -> RecentDrafts:
        """Return the last drafts of a name, an origin at some temperature."""
        return self._drafts.setdefault(name, RecentDrafts())

    def calibration_of(self, name: str) -> Calibration:
        """Return how right the confidence of a name is."""
        return self._calibrations.setdefault(name, Calibration())

    def drafting(self, origin: str) -> RecentSeconds:
        """Return what the draft passes of a step take together, by their number."""
        if origin not in self._drafting:
            costs = self.costs_of(origin)

            def nominal(num_passes: int, depth: int) -> float:
                first, later = draft_costs(
                    lambda num_tokens: self._draft_pass(origin, num_tokens, depth),
                    drafts_blocks=self.drafts_blocks,
                    reads_accepted=self.reads_accepted,
                )
                return first + later * (num_passes - 1)

            self._drafting[origin] = RecentSeconds(nominal, lambda: costs.is_known)
        return self._drafting[origin]

    def catching_up(self, origin: str, num_tokens: int, depth: int) -> float:
        """Return the seconds of a draft pass that reads this many tokens now."""
        nominal = self._draft_pass(origin, num_tokens, depth)
        return max(nominal, self.drafting(origin).seconds(1, depth))

    def _draft_pass(self, origin: str, num_tokens: int, depth: int) -> float:
        """Return the seconds of a draft pass: as measured, or a guess that real ones correct."""
        costs = self.costs_of(origin)
        if costs.is_known:
            return costs.seconds(num_tokens, depth)
        return UNKNOWN_DRAFT_COST * self.verifying.seconds(num_tokens, depth)

    def note_change(self, seconds: float, expected: float, *, changed: bool) -> None:
        """Note what a target pass took that had, or had not, another length than the last."""
        self._changes[changed].append(seconds / expected)
        self.change = self._price_of_change()

    def _price_of_change(self) -> float:
        same, changed = self._changes
        is_known = min(len(same), len(changed)) >= FEW_CHANGES
        more = middle(changed) - middle(same) if is_known else 0.0
        return more if more > LEAST_CHANGE else 0.0


def draft_costs(
    seconds: Callable[[int], float], *, drafts_blocks: bool = False, reads_accepted: bool = False
) -> tuple[float, float]:
    """Return the seconds of the first draft pass of a step and of each later one.

    The first reads the last token, and all tokens that were accepted if the drafter is a head that
    reads them with the target's states. `seconds` are those of a pass by its number of tokens.
    """
    first = seconds(FEW_ACCEPTED) if reads_accepted else seconds(1)
    return first, 0.0 if drafts_blocks else seconds(1)

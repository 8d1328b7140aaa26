"""Which plan is the best: the one whose steps lose least time, as predicted and as measured.

A prediction follows from what a step reads. `specchat tune` times some ways to place a pair, and
what it measured is kept as a share of what is predicted: so it holds when more or less fits onto
the GPU, or when a bandwidth turns out to be another one. Ways that were never timed are taken to
miss their predictions as the timed ones do, so that all are compared on one scale.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specchat.planning.device import Device, hand_over_of
from specchat.planning.plan import Plan
from specchat.planning.token_time import Reads

COST_OF_LESS = 1.5
"""How many times as long a step must take, before the context is shortened, or the KV cache stored
as q8_0, to avoid that."""
COST_OF_NO_HEAD = 2.0
"""The same for a prediction head: what it gains where the target is on the GPU."""
NEVER = 1e9
"""The seconds of a step of a plan that could not be loaded."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The seconds that a step took, and what it read."""

    seconds: float
    reads: Reads


class PlanRanking:
    """Compares plans by the time of their steps, and by what they give up for it."""

    def __init__(
        self, devices: Sequence[Device], best: Plan, measured: Mapping[str, MeasuredStep]
    ) -> None:
        """Plans are compared with the `best`, which gives up nothing.

        `measured` has steps by the plan's `way`, which read from these devices.
        """
        self._bandwidths = [device.bandwidth for device in devices]
        self._hand_over = hand_over_of(devices)
        self._best = best
        self._corrections = {
            way: step.seconds / self.seconds(step.reads) for way, step in measured.items()
        }
        timed = [self._corrections[way] for way, step in measured.items() if step.seconds < NEVER]
        self._usual_correction = median(timed) if timed else 1.0

    def seconds(self, reads: Reads) -> float:
        """Return how long reading is predicted to take."""
        return reads.seconds(self._bandwidths, self._hand_over)

    def predicted_loss(self, plan: Plan, reads: Reads) -> float:
        """Return the predicted seconds of a plan's step, and more for what it gives up for them."""
        best = self._best
        num_less = (plan.ctx < best.ctx) + (plan.cache_type != best.cache_type)
        lacks_head = plan.draft_gpu_layers is None and best.draft_gpu_layers is not None
        cost = COST_OF_LESS**num_less * (COST_OF_NO_HEAD if lacks_head else 1.0)
        return self.seconds(reads) * cost

    def loss(self, plan: Plan, reads: Reads) -> float:
        """Return the same with what was measured."""
        correction = self._corrections.get(plan.way, self._usual_correction)
        return correction * self.predicted_loss(plan, reads)

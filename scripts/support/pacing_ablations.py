"""The mechanisms of pacing, each with a way to switch it off, for measurements only.

An ablation replaces attributes of `specchat.pacing`'s modules while it is active. Nothing in the
package knows of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from specchat.pacing import acceptance, exploration, outcomes
from specchat.pacing.acceptance import AcceptanceModel
from specchat.pacing.draft_economics import DraftEconomics, means
from specchat.pacing.exploration import Exploration
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.passes import padding, pass_costs
from specchat.passes.pass_costs import PLAIN, PassCosts

__all__ = ["ABLATIONS", "ablated"]

NEVER = 10**9


@dataclass(frozen=True, slots=True)
class Patch:
    """An attribute and what stands in for it."""

    owner: Any
    name: str
    value: Any


def _mean_only(self: AcceptanceModel, *arguments: Any, **options: Any) -> list[list[float]]:
    """Return the mean probability instead of three equally likely ones."""
    return [[each] * 3 for each in means(_expected(self, *arguments, **options))]


def _next_token_only(self: DraftEconomics, next_one: float, *_: Any) -> float:
    """Return the gain of one more token, without looking further ahead."""
    place = len(self.drafted) + 1
    if self.room < 1 or place >= len(self.prices) - 1:
        return -1.0
    read = self.another_price * self.survival * ((1.0 if self.drafted else 0.0) - next_one)
    return self.survival * next_one - self.prices[place + 1] + self.prices[place] + read


def _single_cost(self: Knowledge, origin: str, depth: int) -> tuple[float, float, float, float]:
    """Return the seconds of a draft pass and a later one, and none for one token more."""
    single = self.draft_seconds(origin, 1, depth)
    return single, single, 0.0, 0.0


def _end_plain_for_free(self: Exploration, _: float) -> None:
    """Count a plain step without paying for it."""
    self._num_plain += 1


def _straight(self: PassCosts, known: dict[int, float]) -> list[float]:
    """Return the line through the costs of the shortest and the longest known pass."""
    row = _filled(self, known)
    places = sorted(known)
    if len(places) < 2:
        return row
    first, last = places[0], places[-1]
    slope = (known[last] - known[first]) / (last - first)
    return [row[PLAIN], *(known[first] + slope * (n - first) for n in range(1, len(row)))]


def _plain_rate(self: LearningPacer, depth: int, *_: Any) -> float:
    """Return the rate of plain decoding."""
    row, speed = self._knowledge.target.row(depth), self._knowledge.target.speed
    return 1.0 / (row[PLAIN] * speed) if row[PLAIN] else 0.0


_expected = AcceptanceModel.expected
_filled = PassCosts._filled

ABLATIONS: dict[str, tuple[Patch, ...]] = {
    "fast filter": (Patch(acceptance, "DRIFTS", (0.0005,)),),
    "slow filter": (Patch(acceptance, "DRIFTS", (0.015,)),),
    "two filters instead of one": (Patch(acceptance, "DRIFTS", (0.004,)),),
    "weight of the confidence": (Patch(acceptance, "VARIANCES", (4.0, 1e-12, 0.09)),),
    "position in the draft": (Patch(acceptance, "POSITIONS", (0.0,) * 4),),
    "exploring every fourth step only": (Patch(exploration, "PASS_INTERVAL", 1),),
    "weighting of chances": (Patch(AcceptanceModel, "_weight_of_chance", lambda *_: 1.0),),
    "drift of the weights": (Patch(acceptance, "WEIGHT_DRIFT", 0.0),),
    "minimum slope": (Patch(acceptance, "MIN_SLOPE", 0.0),),
    "three probabilities of the next token": (Patch(AcceptanceModel, "expected", _mean_only),),
    "optimism gained in silence": (Patch(acceptance, "OPTIMISM_PER_TOKEN", 0.0),),
    "optimism from uncertainty": (
        Patch(AcceptanceModel, "optimism", property(lambda self: self._gained_optimism)),
    ),
    "chances instead of outcomes": (Patch(outcomes, "LARGEST_TABLE", -1),),
    "exploring draft passes": (Patch(LearningPacer, "_may_explore", lambda *_: False),),
    "budget of exploration": (
        Patch(exploration, "INITIAL_BUDGET", 1e9),
        Patch(exploration, "MAX_BUDGET", 1e9),
    ),
    "charging what exploration leaves behind": (
        Patch(Exploration, "_end_plain", _end_plain_for_free),
    ),
    "what plain decoding settles to": (Patch(exploration, "SETTLED", 0),),
    "growth of the budget": (Patch(exploration, "BUDGET_SHARE", 1e-9),),
    "exploring costs": (Patch(exploration, "COST_STEPS", 0),),
    "rate of the best length": (Patch(LearningPacer, "_rate", _plain_rate),),
    "price of reading an accepted last token": (Patch(Knowledge, "draft_costs", _single_cost),),
    "learning from passages not taken": (Patch(LearningPacer, "_learn_untaken", lambda *_: None),),
    "looking ahead": (Patch(DraftEconomics, "_gain", _next_token_only),),
    "staircase": (Patch(PassCosts, "_filled", _straight),),
    "padding": (Patch(padding, "WORTH_PADDING", 0.0),),
    "costs by depth": (Patch(pass_costs, "_bucket", lambda *_: 0),),
    "common speed": (Patch(pass_costs, "SPEED_WEIGHT", 0.0),),
    "bounded surprise": (Patch(pass_costs, "MAX_SURPRISE", 1e9),),
    "doubting costs learned from answers": (Patch(exploration, "FIRST_DOUBT", NEVER),),
    "fastest of the first and of stale passes": (
        Patch(pass_costs, "NUM_FIRST", -10),
        Patch(pass_costs, "STALE", NEVER),
        Patch(pass_costs, "STALE_SINGLE", NEVER),
    ),
}


@contextmanager
def ablated(name: str | None) -> Iterator[None]:
    """Switch a mechanism off inside the with statement; None leaves everything on."""
    with ExitStack() as stack:
        for each in ABLATIONS[name] if name else ():
            stack.enter_context(patch.object(each.owner, each.name, each.value))
        yield

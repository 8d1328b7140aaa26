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

from specchat.pacing import acceptance, draft_gain, knowledge, pacer, pass_costs, trial_budget
from specchat.pacing.acceptance import AcceptanceModel
from specchat.pacing.draft_gain import DraftEconomics
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.pass_costs import PassCosts
from specchat.pacing.trial_budget import Allowance

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
    found = _expected(self, *arguments, **options)
    return [[sum(thirds) / len(thirds)] * len(thirds) for thirds in found]


def _next_token_only(self: DraftEconomics, next_one: float, _: Any) -> float:
    """Return the gain of one more token, without looking further ahead."""
    place = len(self.drafted) + 1
    if self.room < 1 or place >= len(self.prices) - 1:
        return -1.0
    read = self.another_price * self.survival * ((1.0 if self.drafted else 0.0) - next_one)
    return self.survival * next_one - self.prices[place + 1] + self.prices[place] + read


def _straight(self: PassCosts, known: dict[int, float]) -> list[float]:
    """Return the line through the costs of the shortest and the longest known pass."""
    row = _filled(self, known)
    places = sorted(known)
    if len(places) < 2:
        return row
    first, last = places[0], places[-1]
    slope = (known[last] - known[first]) / (last - first)
    return [0.0, *(known[first] + slope * (n - first) for n in range(1, len(row)))]


def _plain_rate(self: LearningPacer, depth: int, _: int) -> float:
    """Return the rate of plain decoding."""
    row, speed = self._knowledge.target.row(depth), self._knowledge.target.speed
    return 1.0 / (row[1] * speed) if row[1] else 0.0


def _any_length_alike(self: PassCosts, *arguments: Any, **_: bool) -> None:
    """Ignore that the last pass had another length."""
    _observe(self, *arguments)


def _unpriced_change(_: LearningPacer, row: Any, factor: float, __: float) -> list[float]:
    return [factor * cost for cost in row]


def _unpriced_reading(self: DraftEconomics, _: float, __: float, expected: Any = ()) -> bool:
    return self.gain_of_pass(expected) > self.pass_price


def _slopeless(weight: int) -> tuple[float, ...]:
    variances = list(acceptance.VARIANCES)
    variances[weight] = 1e-12
    return tuple(variances)


_expected = AcceptanceModel.expected
_filled = PassCosts._filled
_observe = PassCosts.observe
_no_watch = Patch(pacer, "FEW", 0), Patch(pacer, "ENOUGH", 0)

ABLATIONS: dict[str, tuple[Patch, ...]] = {
    "quick filter": (Patch(acceptance, "PACES", (0.0005,)),),
    "slow filter": (Patch(acceptance, "PACES", (0.015,)),),
    "both filters, for one of 0.004": (Patch(acceptance, "PACES", (0.004,)),),
    "intercept follows the text": (Patch(acceptance, "PACES", (0.0,)),),
    "weights wander": (Patch(acceptance, "SLOPE_WANDERING", 0.0),),
    "weight of the confidence": (Patch(acceptance, "VARIANCES", _slopeless(1)),),
    "weight of the feature": (Patch(acceptance, "VARIANCES", _slopeless(2)),),
    "least slope": (Patch(acceptance, "LEAST_SLOPE", 0.0),),
    "position: weight to begin with": (Patch(knowledge, "PLACE_WEIGHT", 0.0),),
    "position: all of it": (
        Patch(pacer, "POSITION_FEATURES", (0.0,) * 4),
        Patch(draft_gain, "POSITION_FEATURES", (0.0,) * 4),
    ),
    "three probabilities of the next token": (Patch(AcceptanceModel, "expected", _mean_only),),
    "optimism that grows with silence": (Patch(acceptance, "HOPE_PER_TOKEN", 0.0),),
    "optimism from doubt": (
        Patch(AcceptanceModel, "hope", property(lambda self: self._hope_of_change)),
    ),
    "chances count more than outcomes": (
        Patch(AcceptanceModel, "_worth_of_chance", lambda *_: 1.0),
    ),
    "chances instead of outcomes": (Patch(pacer, "LARGEST_TABLE", -1),),
    "watching before use": (Patch(pacer, "FEW", 0),),
    "not giving up after a few": (Patch(pacer, "ENOUGH", 0),),
    "watching and not giving up": _no_watch,
    "looking again": (Patch(LearningPacer, "_may_pay", lambda *_: False),),
    "looking every fourth step only": (Patch(pacer, "LOOKING_INTERVAL", 1),),
    "budget": (Patch(Allowance, "covers", lambda *_: True),),
    "budget earns": (Patch(trial_budget, "SHARE", 0.0),),
    "trials at optimistic costs": (Patch(pacer, "TRIAL_STEPS", 0),),
    "rate of the best length": (Patch(LearningPacer, "_rate", _plain_rate),),
    "rate of plain decoding if unused": (Patch(pacer, "LONGEST_UNASKED", NEVER),),
    "cost of a change of length": (
        Patch(PassCosts, "observe", _any_length_alike),
        Patch(LearningPacer, "_prices", _unpriced_change),
    ),
    "price of reading a kept last token": (
        Patch(LearningPacer, "_draft_costs", lambda self, depth: (
            self._knowledge.draft_seconds(self._origin, 1, depth), 0.0)),
    ),
    "price of reading drafted tokens": (Patch(DraftEconomics, "pays", _unpriced_reading),),
    "passages not taken": (Patch(LearningPacer, "_learn_untaken", lambda *_: None),),
    "looking ahead": (Patch(DraftEconomics, "_gain", _next_token_only),),
    "later steps of a passage": (
        Patch(DraftEconomics, "_later_steps", lambda _, chances, __: [0.0] * len(chances)),
    ),
    "staircase": (Patch(PassCosts, "_filled", _straight),),
    "costs by depth": (Patch(pass_costs, "_bucket", lambda _: 0),),
    "common speed": (Patch(pass_costs, "SPEED_WEIGHT", 0.0),),
    "quickest of the first passes": (Patch(pass_costs, "FEW", 0),),
    "bounded surprise": (Patch(pass_costs, "LARGEST_SURPRISE", 1e9),),
    "old costs give way": (Patch(pass_costs, "STALE", NEVER),),
    "one token costs no more than several": (Patch(PassCosts, "_bound_single", lambda *_: None),),
}  # fmt: skip


@contextmanager
def ablated(name: str | None) -> Iterator[None]:
    """Switch a mechanism off inside the with statement; None leaves everything on."""
    with ExitStack() as stack:
        for each in ABLATIONS[name] if name else ():
            stack.enter_context(patch.object(each.owner, each.name, each.value))
        yield

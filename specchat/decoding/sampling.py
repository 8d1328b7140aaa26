"""From a row of logits to the processed distribution a token is drawn from.

The steps and their order are llama.cpp's defaults (common/sampling.cpp): logit bias, penalties,
top-k, top-p, min-p, temperature. Only tokens near the maximum can survive them, so the row is
narrowed by one comparison first; everything after works on a few dozen candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from specchat.decoding.distribution import Distribution, Ids, Logits
from specchat.errors import EngineFailed, InvalidOption

__all__ = ["Sampler", "Sampling"]

SMALLEST_TEMPERATURE = 1e-6
"""Below it only exact ties are left to chance, and single precision overflows."""
UNREACHABLE = 53 * math.log(2.0)
"""A token this far below the maximum weighs under 2^-53 of it: no 53-bit uniform can draw it."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling options of a request, by llama.cpp's names and with its defaults.

    `temperature` 0 is greedy decoding. `top_k` 0, `top_p` 1, `min_p` 0 and penalties of 1, 0 and 0
    switch a step off. `repeat_last_n` is the number of recent tokens the penalties look at (0 none,
    -1 the whole context). Raises InvalidOption, naming the option, for a value out of its range.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for option in fields(self):
            value = getattr(self, option.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidOption(f"{option.name} must be a finite number, not {value}")
        for token, bias in self.logit_bias.items():
            if token < 0 or math.isnan(bias) or bias == math.inf:
                raise InvalidOption(f"logit_bias cannot be {bias} on token {token}")
        _require(self.temperature >= 0, "temperature must be 0 or more", self.temperature)
        _require(self.top_k >= 0, "top_k must be 0 (off) or more", self.top_k)
        _require(0 < self.top_p <= 1, "top_p must be above 0 and at most 1", self.top_p)
        _require(0 <= self.min_p <= 1, "min_p must be from 0 to 1", self.min_p)
        _require(self.repeat_penalty > 0, "repeat_penalty must be above 0", self.repeat_penalty)
        _require(self.repeat_last_n >= -1, "repeat_last_n must be -1 or more", self.repeat_last_n)

    @property
    def is_greedy(self) -> bool:
        """Say whether every token is the most probable one, as it is at temperatures next to 0."""
        return self.temperature < SMALLEST_TEMPERATURE

    @property
    def needs_history(self) -> bool:
        """Say whether the distribution depends on which tokens came before, beyond the logits."""
        return self.repeat_last_n != 0 and (
            self.repeat_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _require(holds: bool, rule: str, value: float) -> None:
    if not holds:
        raise InvalidOption(f"{rule}, not {value}")


class Sampler:
    """Turns rows of logits into processed distributions for one request.

    It remembers how far below the maximum the candidates of the last row reached, which makes the
    next row cheap to narrow; the result does not depend on that memory.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Prepare for the given options."""
        self.sampling = sampling
        self._bias_ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(sampling.logit_bias.values(), dtype=np.float32)
        self._is_adjusting = bool(sampling.logit_bias) or sampling.needs_history
        unreachable = UNREACHABLE * max(1.0, sampling.temperature)
        self._floor = -math.log(sampling.min_p) if sampling.min_p > 0 else unreachable
        # top-p weighs tokens that min-p removes afterwards, so they must not be missed
        self._search_floor = unreachable if sampling.top_p < 1 else self._floor
        self._reach = 8.0

    def window(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the end of the tokens that the penalties look at: nothing when there are none."""
        if not self.sampling.needs_history:
            return ()
        last_n = self.sampling.repeat_last_n
        return tokens if last_n < 0 else tokens[-last_n:]

    def distribution(self, logits: Logits, history: Sequence[int]) -> Distribution:
        """Return the processed distribution of a row of logits, shape (vocabulary,).

        `history` holds the tokens before this position, the drafted ones included: all of them or
        a `window` of them, extended. Raises EngineFailed for a row of NaN or infinities.
        """
        if self._is_adjusting:
            logits = self._adjusted(logits, history)
        if self.sampling.is_greedy:
            best = int(logits.argmax())
            _require_finite(logits.item(best))
            return Distribution.certain(best)
        top = float(np.maximum.reduce(logits))
        _require_finite(top)
        return self._tempered(*self._survivors(logits, top), top)

    def _adjusted(self, logits: Logits, history: Sequence[int]) -> Logits:
        """Apply logit bias and penalties to a copy."""
        logits = logits.copy()
        known = self._bias_ids < logits.size
        logits[self._bias_ids[known]] += self._bias[known]
        if self.sampling.needs_history:
            self._penalise(logits, history)
        return logits

    def _penalise(self, logits: Logits, history: Sequence[int]) -> None:
        """Lower the logits of recent tokens, as llama.cpp's penalty sampler does."""
        options, recent = self.sampling, self.window(history)
        if not recent:
            return
        ids, counts = np.unique(np.asarray(recent, dtype=np.int64), return_counts=True)
        row = logits[ids]
        row = np.where(row <= 0, row * options.repeat_penalty, row / options.repeat_penalty)
        logits[ids] = row - counts * options.frequency_penalty - options.presence_penalty

    def _survivors(self, logits: Logits, top: float) -> tuple[Ids, Logits]:
        """Return the tokens that survive top-k, top-p and min-p, with their logits."""
        top_k, top_p = self.sampling.top_k, self.sampling.top_p
        if top_k:
            ids, values = self._nearest(logits, top, lambda ids: ids.size >= top_k, top_k)
            if top_p < 1:
                num_kept = _nucleus_size(values, top, top_p * _mass(values, top))
                ids, values = ids[:num_kept], values[:num_kept]
        elif top_p < 1:
            wanted = top_p * _mass(logits, top)
            ids, values = self._nearest(logits, top, lambda ids: _mass(logits[ids], top) >= wanted)
            num_kept = _nucleus_size(values, top, wanted)
            ids, values = ids[:num_kept], values[:num_kept]
            self._aim(top, values)
        else:
            ids = (logits >= top - self._floor).nonzero()[0]
            return ids, logits[ids]
        if self._search_floor > self._floor:
            num_kept = int(np.count_nonzero(values >= top - self._floor))
            return ids[:num_kept], values[:num_kept]
        return ids, values

    def _nearest(
        self,
        logits: Logits,
        top: float,
        is_enough: Callable[[Ids], bool],
        num_wanted: int | None = None,
    ) -> tuple[Ids, Logits]:
        """Return the tokens near the top, best first: enough of them, or all above the floor."""
        reach, floor = min(self._reach, self._search_floor), self._search_floor
        ids = (logits >= top - reach).nonzero()[0]
        while reach < floor and not is_enough(ids):
            reach = min(1.5 * reach, floor)
            ids = (logits >= top - reach).nonzero()[0]
        values = logits[ids]
        order = values.argsort(kind="stable")[::-1][:num_wanted]
        values = values[order]
        if num_wanted:
            self._aim(top, values)
        return ids[order], values

    def _aim(self, top: float, values: Logits) -> None:
        """Expect the next row's survivors to reach about as far below its top as these.

        Aiming too close costs a second search, too far only a longer sort.
        """
        self._reach = max(1.0, 0.5 * self._reach, 1.3 * (top - values.item(-1)))

    def _tempered(self, ids: Ids, values: Logits, top: float) -> Distribution:
        """Apply the temperature."""
        weights = values - np.float32(top)
        if self.sampling.temperature != 1:
            weights /= np.float32(self.sampling.temperature)
        return Distribution(ids, np.exp(weights, out=weights))


def _nucleus_size(values: Logits, top: float, wanted: float) -> int:
    """Count the fewest tokens, best first, whose mass reaches what is wanted."""
    cumulative = np.exp(np.subtract(values, top, dtype=np.float64)).cumsum()
    return int(cumulative.searchsorted(wanted)) + 1


def _mass(values: Logits, top: float) -> float:
    """Return the sum of exp(value - top)."""
    return float(np.add.reduce(np.exp(values - np.float32(top))))


def _require_finite(top: float) -> None:
    if not math.isfinite(top):
        raise EngineFailed(
            "the model's logits are not numbers (NaN or infinite): the file is damaged or this"
            " build cannot run it; fetch the file again, or try --gpu-layers 0"
        )

"""Applies sampling options: from a row of logits to the distribution a token is drawn from.

The steps and their order are llama.cpp's defaults (common/sampling.cpp): logit bias, penalties,
top-k, top-p, min-p, temperature. Only tokens near the maximum can survive them, so one comparison
narrows the row first; the rest works on a few dozen tokens.

A constraint's mask comes before all of them. It is applied to the tokens that a step looks at:
masking the whole row takes many times as long, and is left to rows whose likeliest token may not
come.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from specchat.decoding.constraint import Mask
from specchat.decoding.distribution import LARGEST_TABLE, Distribution, Ids, Logits
from specchat.errors import NothingAllowed, NotNumbers
from specchat.options.declarations import Sampling

UNREACHABLE = 53 * math.log(2.0)
"""A token this far below the maximum has under 2^-53 of its weight: no 53-bit uniform draws it."""


class Sampler:
    """Turns rows of logits into processed distributions for one request.

    It remembers how far below the maximum the last row's surviving tokens reached, which makes the
    next row cheap to narrow. The result does not depend on that.
    """

    def __init__(self, sampling: Sampling) -> None:
        """Prepare for the given options."""
        self.sampling = sampling
        self._bias_ids = np.fromiter(sampling.logit_bias.keys(), dtype=np.int64)
        self._bias = np.fromiter(sampling.logit_bias.values(), dtype=np.float32)
        self._looks_back = sampling.needs_history
        self._is_adjusting = bool(sampling.logit_bias) or self._looks_back
        self._is_greedy = sampling.is_greedy
        unreachable = UNREACHABLE * max(1.0, sampling.temperature)
        self._floor = -math.log(sampling.min_p) if sampling.min_p > 0 else unreachable
        # top-p weighs tokens that min-p removes afterwards, so they are needed
        self._search_floor = unreachable if sampling.top_p < 1 else self._floor
        self._reach = 8.0

    def window(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return the last tokens, those that penalties apply to; empty without penalties."""
        if not self._looks_back:
            return ()
        last_n = self.sampling.repeat_last_n
        last = tokens if last_n < 0 else tokens[-last_n:]
        if not last or min(last) >= 0:
            return last
        texts = [token for token in tokens if token >= 0]  # the others are cells of images
        return texts if last_n < 0 else texts[-last_n:]

    def distribution(
        self, logits: Logits, history: Sequence[int], mask: Mask | None = None
    ) -> Distribution:
        """Return the processed distribution of a row of logits, shape (vocabulary,).

        `history` holds the tokens before this position, drafted ones included: all of them, or a
        `window` and what follows it. Only tokens that the mask allows have a probability. Raises
        NotNumbers for a row of NaN or infinities, and NothingAllowed.
        """
        if self._is_adjusting:
            logits = self._adjusted(logits, history)
        best = int(logits.argmax())
        top: float = logits.item(best)
        if not math.isfinite(top):
            raise NotNumbers(
                "the model's logits are not numbers (NaN or infinite): the file is damaged or this"
                " build cannot run it; download the file again, or try --gpu-layers 0"
            )
        if mask is not None and not mask.allows(best):
            logits, mask = mask.masked(logits), None
            best = int(logits.argmax())
            top = logits.item(best)
            if math.isinf(top):
                raise NothingAllowed(
                    "no token may come next: logit_bias forbids all that the grammar allows"
                )
        if self._is_greedy:
            return Distribution.certain(best)
        if 0 < self.sampling.top_k <= LARGEST_TABLE:
            return self._among_few(*self._few_allowed(logits, top, mask), top)
        if mask is not None:
            logits = mask.masked(logits)
        return self._tempered(*self._survivors(logits, top), top)

    def preferred(self, logits: Logits, history: Sequence[int], mask: Mask | None = None) -> Logits:
        """Return the row whose highest logit is picked at temperature 0.

        It is the given one unless something changes it: bias, penalties or a mask.
        """
        if self._is_adjusting:
            logits = self._adjusted(logits, history)
        return logits if mask is None else mask.masked(logits)

    def _few_allowed(self, logits: Logits, top: float, mask: Mask | None) -> tuple[Ids, Logits]:
        """Return the allowed tokens that survive top-k, best first."""
        if mask is None:
            return self._nearest_few(logits, top)
        top_k = self.sampling.top_k
        ids = (logits >= top - min(self._reach, self._search_floor)).nonzero()[0]
        ids = ids[mask.allowed(ids)]
        if ids.size < top_k:
            return self._nearest_few(mask.masked(logits), top)
        values = logits[ids]
        order = values.argsort(kind="stable")[::-1][:top_k]
        return ids[order], values[order]

    def _nearest_few(self, logits: Logits, top: float) -> tuple[Ids, Logits]:
        """Return the tokens that survive top-k, best first."""
        top_k = self.sampling.top_k
        return self._nearest(logits, top, lambda ids: ids.size >= top_k, top_k)

    def _among_few(self, ids: Ids, logits: Logits, top: float) -> Distribution:
        """Apply top-p, min-p and the temperature to a few tokens, best first, as lists."""
        sampling, floor = self.sampling, top - self._floor
        values: list[float] = logits.tolist()
        num_kept = len(values)
        if sampling.top_p < 1:
            num_kept = _smallest_nucleus(
                [math.exp(value - top) for value in values], sampling.top_p
            )
        while values[num_kept - 1] < floor:
            num_kept -= 1
        heat = sampling.temperature
        weights = [math.exp((value - top) / heat) for value in values[:num_kept]]
        return Distribution.of_table(ids[:num_kept].tolist(), weights)

    def _adjusted(self, logits: Logits, history: Sequence[int]) -> Logits:
        """Apply logit bias and penalties to a copy."""
        logits = logits.copy()
        is_in_row = self._bias_ids < logits.size
        logits[self._bias_ids[is_in_row]] += self._bias[is_in_row]
        if self._looks_back:
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
            ids, values = self._nearest_few(logits, top)
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
        """Return enough tokens near the top, or all above the floor, best first."""
        reach, floor = min(self._reach, self._search_floor), self._search_floor
        ids = (logits >= top - reach).nonzero()[0]
        while reach < floor and not is_enough(ids):
            reach = min(1.5 * reach, floor)
            ids = (logits >= top - reach).nonzero()[0]
        values = logits[ids]
        if num_wanted and ids.size > num_wanted:  # sorting all of them takes far longer
            is_near = values >= np.partition(values, -num_wanted)[-num_wanted]
            ids, values = ids[is_near], values[is_near]
        order = values.argsort(kind="stable")[::-1][:num_wanted]
        values = values[order]
        if num_wanted:
            self._aim(top, values)
        return ids[order], values

    def _aim(self, top: float, values: Logits) -> None:
        """Expect the next row's surviving tokens to reach about as far below its maximum as these.

        Too narrow an estimate costs a second search, too wide a one only a longer sort.
        """
        self._reach = max(1.0, 0.5 * self._reach, 1.3 * (top - values.item(-1)))

    def _tempered(self, ids: Ids, values: Logits, top: float) -> Distribution:
        """Apply the temperature."""
        weights = values - np.float32(top)
        if self.sampling.temperature != 1:
            weights /= np.float32(self.sampling.temperature)
        return Distribution(ids, np.exp(weights, out=weights))


def _smallest_nucleus(weights: list[float], share: float) -> int:
    """Return the smallest number of weights, largest first, that reach a share of their sum."""
    wanted = share * sum(weights)
    for index, weight in enumerate(weights):
        wanted -= weight
        if wanted <= 0:
            return index + 1
    return len(weights)


def _nucleus_size(values: Logits, top: float, wanted: float) -> int:
    """Return the smallest number of tokens, best first, whose mass reaches `wanted`."""
    cumulative = np.exp(np.subtract(values, top, dtype=np.float64)).cumsum()
    return int(cumulative.searchsorted(wanted)) + 1


def _mass(values: Logits, top: float) -> float:
    """Return the sum of exp(value - top)."""
    return float(np.add.reduce(np.exp(values - np.float32(top))))

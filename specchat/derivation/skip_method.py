"""A draft model made by leaving out layers of the target (Draft & Verify, Zhang et al. 2023)."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from specchat.derivation.derived_files import (
    MeasuredDraft,
    costs_of,
    derived_path,
    keep_draft,
    measure_draft,
    scratch_file,
)
from specchat.derivation.gain import (
    Costs,
    Guess,
    acceptance,
    drafting_rate,
    guesses_of,
)
from specchat.derivation.layer_search import Layers, LayerSearch, Measured
from specchat.derivation.sampled_texts import Text, sample_texts
from specchat.derivation.simulated_pair import ORIGIN
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import Cancelled, SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.origin import DraftOrigin, fingerprints, origin_of
from specchat.gguf.tensor_types import StoredType
from specchat.llama.layer_skipping import ForcedTexts
from specchat.llama.library import AbortFlag
from specchat.llama.pruning import Copy, write_copy
from specchat.options.declarations import LoadOptions, Sampling
from specchat.pacing.recent_drafts import LONGEST
from specchat.planning.context_shape import ModelOptions
from specchat.planning.model_layout import BLOCK, blocks_of, layout_of
from specchat.sharing.process_engine import try_out
from specchat.wording import percent, speedup_text

METHOD = "skip"
LEAST_LAYERS = 4
MOST_LISTED = 16
SHARE_FOR_SINGLES = 0.25
"""The share of the time for measuring how much single layers matter."""
SHARE_FOR_TEXTS = 0.4
"""The share of the time for sampling answers; a few are sampled in any case."""
SETS_PER_LAYER, LEAST_TEXTS = 2, 2
"""How many sets per layer there should be time for, and the fewest texts to measure them on."""


@dataclass(frozen=True, slots=True)
class SkipRequest:
    """What to derive: how to load the target, how to sample its answers, and how long to search.

    With `quantization` None, the draft's weights stay as the target's. With `keep_any`, a draft
    without a predicted speedup is kept, too.
    """

    loading: Loading
    sampling: Sampling
    seconds: float
    quantization: StoredType | None = None
    keep_any: bool = False


@dataclass(frozen=True, slots=True)
class Derived:
    """A derived draft: the layers it lacks, how they were found, and what was predicted.

    `path` is None for a draft that was not kept.
    """

    num_layers: int
    left_out: tuple[int, ...]
    num_measured: int
    measured: MeasuredDraft
    path: Path | None

    @property
    def record(self) -> dict[str, Any]:
        """How it was found, for JSON."""
        return {
            "layers": self.num_layers,
            "left_out": self.left_out,
            "sets_measured": self.num_measured,
        }

    @property
    def summary(self) -> str:
        """How it was found, as text."""
        listed = ", ".join(map(str, self.left_out[:MOST_LISTED]))
        more = ", ..." if len(self.left_out) > MOST_LISTED else ""
        return (
            f"draft: {len(self.left_out)} of {self.num_layers} layers left out"
            f" ({listed}{more}), the best of {self.num_measured} sets measured"
        )


class SkipDerivation:
    """The derivation of one draft, the best so far once `stop` is called, from any thread."""

    def __init__(self, request: SkipRequest, report: Callable[[str], object]) -> None:
        """Check the target; `report` is called with each progress line. Raises SpecchatError."""
        self._request, self._report = request, report
        self._header = read_whole_model(request.loading.target)
        require_skippable(self._header)
        self._abort = AbortFlag()
        self._began = monotonic()

    def stop(self) -> None:
        """End the search."""
        self._abort.set()

    def run(self) -> Derived:
        """Return the draft; raises Cancelled if stopped before anything was measured."""
        request, path = self._request, derived_path(self._header, METHOD)
        search, held_out = self._search()
        if (best := search.best) is None:
            raise Cancelled("stopped before anything was measured")
        left_out, count = tuple(sorted(best.layers)), self._header.num_layers
        with scratch_file(path) as scratch:
            self._report("writing the draft")
            file_type = request.quantization.file_type if request.quantization else None
            write_copy(Copy(str(request.loading.target), str(scratch), left_out, {}, file_type))
            self._report("measuring the draft")
            measured = measure_draft(request.loading, scratch, held_out, request.sampling)
            is_kept = measured.is_worth_keeping or request.keep_any
            if is_kept:
                layers = f"{count - len(left_out)} of {count} layers"
                method = f"{METHOD}: {layers} kept"
                model, name = fingerprints(self._header).model, self._header.name
                origin = DraftOrigin(model, name, method, "the target's answers")
                keep_draft(measured, path, origin, f"{name}, {layers}")
        return Derived(count, left_out, len(search.results), measured, path if is_kept else None)

    def _search(self) -> tuple[LayerSearch, list[Text]]:
        """Return the finished search, and the texts held out from it."""
        request = self._request
        loading, options = replace(request.loading, head=False), request.sampling.values(Sampling)
        try_out(loading)
        with LocalEngine(loading) as engine:
            engine.prepare()
            texts = sample_texts(engine, options, self._report_sampling)
            costs = costs_of(engine.pacing.knowledge, ORIGIN)
            chosen, held_out = texts[::2], texts[1::2]  # for the choice, and for the prediction
            shape = ModelOptions(**loading.values(LoadOptions))
            with ForcedTexts(engine.model, chosen, shape, self._abort) as forced:
                began = monotonic()
                wanted = guesses_of(forced.rows(), request.sampling)
                seconds_each = self._use_fewer(forced, monotonic() - began)
                shares = layer_shares(self._header, request.quantization)
                judge = _Judge(shares, costs, wanted, request.sampling, forced)
                search = judge.search(self._seconds_left, seconds_each)
                with suppress(Cancelled):
                    self._follow(search, costs)
        return search, held_out

    def _use_fewer(self, forced: ForcedTexts, seconds: float) -> float:
        """Use fewer texts if time is short, to try more sets; return the seconds per set."""
        count, num_sets = len(forced.texts), SETS_PER_LAYER * self._header.num_layers
        num_kept = int(count * self._seconds_left / (seconds * num_sets))
        forced.texts = forced.texts[: max(LEAST_TEXTS, num_kept)]
        return seconds * len(forced.texts) / count

    def _follow(self, search: LayerSearch, costs: Costs) -> None:
        """Search until the time is up."""
        for _ in search:
            if search.best:
                left = self._seconds_left
                self._report(_search_line(search.best, len(search.results), costs, left))
            if self._seconds_left <= 0:
                break

    @property
    def _seconds_left(self) -> float:
        return self._began + self._request.seconds - monotonic()

    def _report_sampling(self, number: int, count: int) -> bool:
        if self._abort.is_set():
            raise Cancelled("stopped before anything was measured")
        self._report(f"sampling answer {number + 1} of {count} of the target")
        return self._seconds_left < (1.0 - SHARE_FOR_TEXTS) * self._request.seconds


class _Judge:
    """Measures sets of layers on texts, and predicts the rates they allow."""

    def __init__(
        self,
        shares: Sequence[float],
        costs: Costs,
        wanted: Sequence[Guess],
        sampling: Sampling,
        forced: ForcedTexts,
    ) -> None:
        num_tokens = sum(count for _, count in forced.texts)
        self._costs, self._wanted = costs, wanted[:num_tokens]
        self._sampling, self._forced = sampling, forced
        self._shares = shares

    def search(self, seconds: float, seconds_each: float) -> LayerSearch:
        """Return a search that fits into a number of seconds."""
        num_singles = max(2, int(SHARE_FOR_SINGLES * seconds / seconds_each))
        layers = range(1, len(self._shares) - 1)  # layer 0 is kept
        return LayerSearch(layers, self.measure, self.rate, num_singles)

    def measure(self, layers: Layers) -> Measured:
        """Return how well the model predicts its own answers without these layers."""
        offered = guesses_of(self._forced.rows(layers), self._sampling)
        accepted = acceptance(self._wanted, offered)
        rate = drafting_rate(self._costs_without(layers), np.array([accepted]))
        return Measured(layers, sum(accepted) / len(accepted), rate)

    def rate(self, layers: Layers, accepted: float) -> float:
        """Return the tokens per second if this share is accepted everywhere."""
        return drafting_rate(self._costs_without(layers), np.full((1, LONGEST), accepted))

    def _costs_without(self, layers: Layers) -> Costs:
        """Return the costs of a draft without some layers: a pass reads that much less."""
        share = sum(self._shares) - sum(self._shares[layer] for layer in layers)
        return Costs(self._costs.target, [share * seconds for seconds in self._costs.target])


def require_skippable(header: Header) -> None:
    """Raise SpecchatError, with the reason, for a model whose layers cannot be left out."""
    layout, name = layout_of(header), header.name
    if origin_of(header):
        reason = "it is a derived draft itself"
    elif header.num_heads:
        reason = "it has a prediction head (MTP)"
    elif layout.is_recurrent:
        reason = "it keeps a recurrent state"
    elif header.num_layers < LEAST_LAYERS:
        reason = f"at least {LEAST_LAYERS} layers are needed, and it has {header.num_layers}"
    elif len(set(layout.layers)) > 1 or _has_other_layers(header):
        reason = "its layers differ from one another"
    else:
        return
    raise SpecchatError(f"no layers of {name} can be left out: {reason}; choose another target")


def layer_shares(header: Header, quantization: StoredType | None = None) -> list[float]:
    """Return the share of the bytes that a pass reads for each layer, and for all else.

    If the copy is quantized, they are its own bytes as shares of the target's.
    """
    sizes = [0.0] * header.num_layers
    rest = 0.0
    is_tied = "output.weight" not in header.tensors
    for name, tensor in header.tensors.items():
        num_bytes = tensor.num_bytes * (header.active_share if "_exps" in name else 1.0)
        if match := BLOCK.fullmatch(name):
            sizes[int(match[1])] += num_bytes
        elif is_tied or name != "token_embd.weight":  # one row of it is read
            rest += num_bytes
    total = sum(sizes) + rest
    if quantization:
        total *= header.num_bytes / header.num_parameters
        total /= quantization.num_bytes / quantization.num_values
    return [size / total for size in (*sizes, rest)]


def _has_other_layers(header: Header) -> bool:
    """Return True if layers have other tensors, or the metadata a value for each layer."""
    blocks = blocks_of(header)
    kinds = {
        frozenset((name, tensor.shape) for name, tensor in own.items()) for own in blocks.values()
    }
    prefix, values = f"{header.architecture}.", header.metadata.items()
    lengths = {
        len(value) for key, value in values if key.startswith(prefix) and type(value) is tuple
    }
    is_whole = len(blocks) == header.num_layers == max(blocks, default=0) + 1
    return not is_whole or len(kinds) > 1 or len(blocks) in lengths


def _search_line(best: Measured, num_measured: int, costs: Costs, seconds_left: float) -> str:
    """Return the progress of a search. Pacing would not draft where drafting is slower."""
    speed, left = speedup_text(best.rate * costs.target[1]), max(0, int(seconds_left))
    return (
        f"sets of layers measured: {num_measured}; best: {len(best.layers)} left out,"
        f" {percent(best.accepted)} accepted, {speed} while drafting;"
        f" {left // 60}:{left % 60:02} left"
    )

"""A draft made by training: a head or a small model learns to predict the target's answers."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from operator import mul
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from specchat.derivation.answer_sampling import AnswerSampling, TrainingPrompts
from specchat.derivation.answer_store import AnswerBatch, AnswerStore
from specchat.derivation.derived_files import (
    NEW,
    derived_path,
    keep_file,
    measure_draft,
    measured_costs,
    scratch_file,
)
from specchat.derivation.draft_format import can_have_head, num_head_weights
from specchat.derivation.gain import Costs, PredictedGain, chances_by_position, drafting_rate
from specchat.derivation.sampled_texts import sample_texts
from specchat.engine.local_engine import LocalEngine
from specchat.errors import Cancelled, OutOfMemory, SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.origin import DraftOrigin, fingerprints, origin_of
from specchat.gguf.reader import raw_metadata
from specchat.gguf.vocabulary_facts import TOKENS
from specchat.llama import freed_memory
from specchat.options.declarations import Sampling
from specchat.planning.host_resources import available_bytes, num_cores
from specchat.planning.model_layout import layout_of
from specchat.system.private_files import FOLDERS, make_private, open_private, write_private
from specchat.wording import percent, speedup_text

if TYPE_CHECKING:
    from specchat.derivation.trainee import Trainee

METHOD = "train"
BATCH = 3072
"""Tokens of a batch."""
SAMPLING_SHARE = 0.7
"""The share of the time in which answers are sampled; then all threads train."""
LEAST_ANSWERS = 200
"""Answers sampled before training begins."""
DRAFT_LENGTH = 4
"""Networks are compared by how many tokens of such a draft are accepted."""
BYTES_PER_WEIGHT = 24
"""Bytes of memory per weight: the weight, its gradient, the optimizer's state, the best weight."""
INTERVAL = 120.0
"""Seconds between checkpoints."""
NUM_HELD_OUT = 160
OWN = "own-texts"
"""An empty file of this name marks answers of which some are about the user's own texts."""
MISSING = f"training needs PyTorch: run `{sys.executable} -m pip install 'torch>=2.9' gguf`"


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to train: on which target's answers, sampled how, and for how many seconds.

    With `keep_any`, a draft without a predicted speedup is kept, too.
    """

    prompts: TrainingPrompts
    sampling: Sampling
    seconds: float
    keep_any: bool = False


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained draft: on what, how well it agrees, and what was predicted.

    `path` is None for a draft that was not kept.
    """

    num_answers: int
    steps: int
    agreement: float
    predicted: PredictedGain
    path: Path | None


class TrainDerivation:
    """The training of one draft, which resumes an earlier training for the same target.

    The best draft so far is kept once `stop` is called, from any thread.
    """

    def __init__(self, request: TrainRequest, report: Callable[[str], object]) -> None:
        """Check the target; `report` is called with each progress line. Raises SpecchatError."""
        self._request, self._report = request, report
        self._header = read_whole_model(request.prompts.loading.target)
        require_trainable(self._header)
        if not importlib.util.find_spec("torch") or not importlib.util.find_spec("gguf"):
            raise SpecchatError(MISSING)
        self.work = work_folder(self._header)
        make_private(self.work)
        self._stopped = Event()
        self._threads = request.prompts.loading.threads or num_cores()

    def stop(self) -> None:
        """End the training."""
        self._stopped.set()

    def run(self) -> Trained:
        """Return the draft; raises Cancelled if stopped before training began."""
        freed_memory.keep()
        self._tidy()
        request, trainee = self._request, self._trainee()
        path = derived_path(self._header, trainee.method)
        if request.prompts.texts or request.prompts.questions:
            open_private(self.work / OWN).close()
        with scratch_file(path) as scratch:
            trainee.training.restore(self.work / trainee.checkpoint)
            write_private(scratch, trainee.file())
            self._report("measuring what passes cost")
            costs = measured_costs(request.prompts.loading, scratch)
            half, layers = max(1, self._threads // 2), trainee.layers
            width = len(layers) * self._header.own("embedding_length")
            store = AnswerStore(self.work, inputs_width=width)
            sampling = AnswerSampling(request.prompts, self.work, store, half, layers)
            with sampling:
                self._train(trainee, store, sampling, costs)
            write_private(scratch, trainee.file())
            self._report("measuring the draft")
            with LocalEngine(replace(request.prompts.loading, head=False)) as engine:
                texts = sample_texts(engine, request.sampling.values(Sampling))
            predicted = measure_draft(request.prompts.loading, scratch, texts, request.sampling)
            is_kept = predicted.is_worth_keeping or request.keep_any
            if is_kept:
                name = f"{self._header.name}, trained {trainee.kind}"
                origin = self._origin(store, trainee, predicted)
                keep_file(scratch, path, {**origin.metadata, "general.name": name})
        kept, count, training = path if is_kept else None, len(store.training), trainee.training
        return Trained(count, training.steps, training.agreement, predicted, kept)

    def _tidy(self) -> None:
        """Delete partial files of a killed run."""
        for pattern in ("*.part", f"*{NEW}"):
            for path in self.work.glob(pattern):
                path.unlink()

    def _trainee(self) -> "Trainee":
        """Return the network to train: a head if llama.cpp can run one for this target.

        Raises OutOfMemory where one that was begun no longer fits in memory.
        """
        from specchat.derivation.trainee import DraftTrainee, HeadTrainee
        from specchat.llama.hidden_states import can_read_layer_inputs

        is_head = can_read_layer_inputs and can_have_head(self._header)
        missing = self._missing_bytes()
        kind = HeadTrainee if is_head and not missing else DraftTrainee
        need, why = f"needs {ceil(missing / 1e8) / 10:.1f} GB more memory than is free", ""
        if is_head and missing:
            begun, why = self.work / HeadTrainee.checkpoint, f": a head {need}"
            if begun.exists():
                advice = f"close other programs, or delete {begun} to train a small model instead"
                raise OutOfMemory(f"training the head further {need}: {advice}")
        self._report(f"training {kind.description}{why}")
        return kind(self._header, -(-self._threads // 2))

    def _missing_bytes(self) -> int:
        """Return how much memory is missing to train a head beside its target, 0 if it fits."""
        needed = self._header.num_bytes + BYTES_PER_WEIGHT * num_head_weights(self._header)
        free = available_bytes()
        return 0 if free is None else max(0, needed - free)

    def _train(
        self, trainee: "Trainee", store: AnswerStore, sampling: AnswerSampling, costs: Costs
    ) -> None:
        """Train until the time is up, saving checkpoints."""
        began = saved = before = monotonic()
        until = began + SAMPLING_SHARE * self._request.seconds
        training, batches = trainee.training, self._batches(trainee, store, sampling, until)
        with suppress(StopIteration):
            while (share := (monotonic() - began) / self._request.seconds) < 1.0:
                if share > SAMPLING_SHARE or sampling.why_full:
                    sampling.stop()
                    training.use_threads(self._threads)
                training.step([next(batches) for _ in range(trainee.batches)], share)
                now = monotonic()
                training.seconds, before = training.seconds + now - before, now
                if now - saved > INTERVAL:
                    self._checkpoint(trainee, store, sampling, costs)
                    saved = monotonic()
        if not training.steps:
            raise Cancelled("stopped before anything was trained")
        self._checkpoint(trainee, store, sampling, costs)

    def _batches(
        self, trainee: "Trainee", store: AnswerStore, sampling: AnswerSampling, until: float
    ) -> Iterator[AnswerBatch]:
        """Wait for the first answers, then yield batches until stopped.

        The wait ends at `until` or when the store is full. Raises SpecchatError without an answer.
        """
        while len(store.training) < LEAST_ANSWERS and not self._stopped.wait(1.0):
            sampling.check()
            store.refresh()
            self._report(f"sampling the first answers: {len(store.training)} of {LEAST_ANSWERS}")
            if sampling.why_full or monotonic() > until:
                sampling.stop()
                store.refresh()
                break
        if self._stopped.is_set():
            return
        if not store.training:
            why, advice = "could be sampled in this time", "train for longer"
            if sampling.why_full:
                why, advice = f"were sampled, as {sampling.why_full}", "make room first"
            raise SpecchatError(f"no answers {why}: {advice}")
        if not trainee.training.steps:
            trainee.begin(store.training)
        for batch in store.batches(BATCH, trainee.training.steps):
            if self._stopped.is_set():
                return
            sampling.check()
            yield batch

    def _checkpoint(
        self, trainee: "Trainee", store: AnswerStore, sampling: AnswerSampling, costs: Costs
    ) -> None:
        """Save the state; report and log how often it agrees, and the speedup that predicts."""
        training, held_out = trainee.training, store.held_out[:NUM_HELD_OUT]
        is_best, _ = training.agreements(
            [example for example in held_out if not example.temperature]
        )
        _, overlaps = training.agreements([example for example in held_out if example.temperature])
        greedy, sampled = (
            float(values.mean()) if values.size else 0.0 for values in (is_best, overlaps[0])
        )
        expected = accumulate(chances_by_position(overlaps)[:DRAFT_LENGTH], mul)
        training.keep_if_better(sum(expected), (greedy + sampled) / 2)
        training.save(self.work / trainee.checkpoint)
        rate = drafting_rate(costs, overlaps) if overlaps.size else 1 / costs.target[1]
        full = f"; no more answers: {sampling.why_full}" if sampling.why_full else ""
        line = (
            f"{training.seconds / 60:.0f} min, {training.steps} steps,"
            f" {len(store.training)} answers: {percent(greedy)} agree at temperature 0,"
            f" {percent(sampled)} at 0.8; {speedup_text(rate * costs.target[1])} predicted{full}"
        )
        self._report(line)
        with open_private(self.work / "training.log") as log:
            print(line, file=log)

    def _origin(
        self, store: AnswerStore, trainee: "Trainee", predicted: PredictedGain
    ) -> DraftOrigin:
        own = ", and the user's texts" if (self.work / OWN).exists() else ""
        minutes = f"{trainee.training.seconds / 60:.0f} min"
        data = f"{len(store.training)} answers to specchat's prompts{own}"
        model = fingerprints(self._header).model
        speedup = f"{predicted.speedup:.3f}"
        return DraftOrigin(model, self._header.name, f"{METHOD}: {minutes}", data, speedup)


def work_folder(header: Header) -> Path:
    """Return the folder of a target's sampled answers and checkpoints."""
    return FOLDERS.user_cache_path / "training" / derived_path(header, METHOD).stem


def require_trainable(header: Header) -> None:
    """Raise SpecchatError, with the reason, for a model that no draft can be trained for."""
    embedding = header.tensors.get("token_embd.weight")
    is_matrix = embedding is not None and bool(embedding.shape[1:])
    if origin_of(header):
        reason = "it is a derived draft itself"
    elif layout_of(header).is_recurrent:
        reason = "it keeps a recurrent state"
    elif not is_matrix or not raw_metadata(header.parts[0], TOKENS):
        reason = "it has no vocabulary"
    else:
        return
    raise SpecchatError(f"no draft can be trained for {header.name}: {reason}")

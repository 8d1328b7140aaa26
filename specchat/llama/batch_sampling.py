"""Samples a model's answers to many prompts at once, keeping the likeliest tokens at each position.

It can also keep the inputs of some layers, from which prediction heads learn.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.errors import Cancelled, EngineFailed, OutOfMemory
from specchat.llama.hidden_states import keep_layer_inputs, layer_inputs_of
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model

LIKELIEST = 24
"""The number of tokens whose probability is kept at each position."""
WIDEST_GAP = 12.0
"""Tokens whose logit is this far below the highest are not kept."""
ROWS_A_PASS = 512
LARGEST_KEPT = 65504.0
"""The largest number in half precision."""
LOOP, LOOPS = 20, 3
"""An answer ends when its last LOOP tokens have occurred LOOPS times before."""


@dataclass(slots=True)
class SampledAnswer:
    """A prompt, the tokens sampled after it, and the likeliest tokens at each of their positions.

    `logs` has the logarithms of their probabilities; both have LIKELIEST entries, unused ones being
    -inf. `origin` is the caller's own note about the prompt. `inputs` has the layers' inputs side
    by side for all tokens but the last, in parts of shape (tokens, width).
    """

    prompt: list[int]
    temperature: float
    origin: Any = None
    tokens: list[int] = field(default_factory=list)
    likeliest: list[NDArray[np.int32]] = field(default_factory=list)
    logs: list[NDArray[np.float16]] = field(default_factory=list)
    inputs: list[NDArray[np.float16]] = field(default_factory=list)

    @property
    def last(self) -> tuple[int, int]:
        """The last token and its position."""
        return (self.tokens or self.prompt)[-1], len(self.prompt) + len(self.tokens) - 1


class BatchSampler(AbstractContextManager["BatchSampler"]):
    """A context of many sequences, each of which grows by one token per pass."""

    def __init__(
        self,
        model: Model,
        sequences: int,
        length: int,
        *,
        threads: int,
        seed: int,
        beginning: Sequence[int] = (),
        layers: Sequence[int] = (),
        abort: AbortFlag | None = None,
    ) -> None:
        """Make a context for texts of up to `length` tokens.

        `beginning` is the usual beginning of the prompts, which is evaluated once. Answers keep the
        inputs of `layers`. Raises OutOfMemory.
        """
        self._abort = abort or AbortFlag()
        self._model, self._length = model, length
        self._random = np.random.default_rng(seed)
        self._spare, self._beginning = sequences, list(beginning)
        parameters = api.llama_context_default_params()
        parameters.n_ctx = (sequences + 1) * length
        parameters.n_batch = parameters.n_ubatch = ROWS_A_PASS
        parameters.n_seq_max = sequences + 1
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.no_perf = True
        self._handle = api.llama_init_from_model(model.handle, parameters)
        if self._handle is None:
            raise OutOfMemory("not enough memory to sample answers: close other programs")
        self._abort.attach(self._handle)
        self._memory = api.llama_get_memory(self._handle)
        self._batch = api.llama_batch_init(ROWS_A_PASS, 0, 1)
        self._slots: list[SampledAnswer | None] = [None] * sequences
        self._layers, self._width = layers, int(api.llama_model_n_embd(model.handle))
        keep_layer_inputs(self._handle, layers)
        self._of_beginning: list[NDArray[np.float16]] | None = None

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            api.llama_batch_free(self._batch)
            api.llama_free(self._handle)
            self._handle = None

    def answers(self, prompts: Iterable[SampledAnswer], longest: int) -> Iterator[SampledAnswer]:
        """Yield answers of at most `longest` tokens, in the order in which they end."""
        source = iter(prompts)
        while True:
            for slot, answer in enumerate(self._slots):
                if answer is None and (new := next(source, None)):
                    self._slots[slot] = new
                    self._begin(slot, new)
            texts = [(slot, answer) for slot, answer in enumerate(self._slots) if answer]
            if not texts:
                return
            read = self._pass([(slot, *text.last) for slot, text in texts], with_logits=True)
            for number, (_, answer) in enumerate(texts):
                answer.inputs += [part[number : number + 1].copy() for part in read]
            self._sample([answer for _, answer in texts])
            for slot, answer in texts:
                if self._is_done(answer, longest):
                    api.llama_memory_seq_rm(self._memory, slot, -1, -1)
                    self._slots[slot] = None
                    yield answer

    def _begin(self, slot: int, answer: SampledAnswer) -> None:
        """Evaluate all of a prompt but its last token in separate passes.

        llama.cpp would split a pass together with the other texts into many short ones.
        """
        if self._of_beginning is None:
            self._of_beginning = self._evaluate(self._spare, self._beginning, 0)
        done, prompt = len(self._beginning), answer.prompt
        if prompt[:done] == self._beginning and done < len(prompt):
            api.llama_memory_seq_cp(self._memory, self._spare, slot, -1, -1)
            answer.inputs += self._of_beginning
        else:
            done = 0
        answer.inputs += self._evaluate(slot, prompt[done:-1], done)

    def _evaluate(self, slot: int, tokens: Sequence[int], start: int) -> list[NDArray[np.float16]]:
        """Evaluate tokens of a sequence; return the layers' inputs in parts."""
        rows = [(slot, token, start + number) for number, token in enumerate(tokens)]
        read = []
        for first in range(0, len(rows), ROWS_A_PASS):
            read += self._pass(rows[first : first + ROWS_A_PASS])
        return read

    def _pass(
        self, rows: Sequence[tuple[int, int, int]], *, with_logits: bool = False
    ) -> list[NDArray[np.float16]]:
        """Evaluate rows of (sequence, token, position); return the layers' inputs."""
        batch = self._batch
        for number, (slot, token, position) in enumerate(rows):
            batch.token[number], batch.pos[number] = token, position
            batch.n_seq_id[number], batch.seq_id[number][0] = 1, slot
            batch.logits[number] = with_logits
        batch.n_tokens = len(rows)
        if code := api.llama_decode(self._handle, batch):
            if self._abort.is_set():
                raise Cancelled("stopped while answers were sampled")
            raise EngineFailed(f"llama.cpp failed to evaluate a batch (code {code})")
        if not self._layers:
            return []
        read = layer_inputs_of(self._handle, self._layers, len(rows), self._width)
        return [read.clip(-LARGEST_KEPT, LARGEST_KEPT).astype(np.float16)]

    def _sample(self, answers: Sequence[SampledAnswer]) -> None:
        """Add a token to each text, by the logits of the last pass."""
        values = api.llama_get_logits(self._handle)
        rows = np.ctypeslib.as_array(values, (len(answers), self._model.vocabulary.size))
        for answer, row in zip(answers, rows, strict=True):
            tokens, logs = likeliest(row)
            chosen = 0
            if answer.temperature > 0:
                weights = np.exp(logs.astype(np.float32) / answer.temperature)
                chosen = self._random.choice(LIKELIEST, p=weights / weights.sum())
            answer.tokens.append(int(tokens[chosen]))
            answer.likeliest.append(tokens)
            answer.logs.append(logs)

    def _is_done(self, answer: SampledAnswer, longest: int) -> bool:
        tokens = answer.tokens
        is_at_end = tokens[-1] in self._model.vocabulary.end_tokens
        is_full = answer.last[1] + 1 >= self._length
        return is_at_end or is_full or len(tokens) >= longest or is_looping(tokens)


def likeliest(row: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.float16]]:
    """Return a row's likeliest tokens and the logarithms of their probabilities, best first."""
    highest = row.max()
    total = np.log(np.exp(row - highest).sum())
    near = np.flatnonzero(row > highest - WIDEST_GAP)
    if near.size > LIKELIEST:
        near = near[np.argpartition(row[near], -LIKELIEST)[-LIKELIEST:]]
    near = near[np.argsort(-row[near], kind="stable")]
    tokens, logs = np.zeros(LIKELIEST, np.int32), np.full(LIKELIEST, -np.inf, np.float16)
    tokens[: near.size], logs[: near.size] = near, row[near] - highest - total
    return tokens, logs


def is_looping(tokens: Sequence[int]) -> bool:
    """Return True if the last tokens have occurred often before."""
    last = list(tokens[-LOOP:])
    if len(tokens) < LOOP * (LOOPS + 1):
        return False
    begins = [index for index in range(len(tokens) - LOOP) if tokens[index] == last[0]]
    return sum(list(tokens[index : index + LOOP]) == last for index in begins) >= LOOPS

"""Sampling a target's answers in the background, while a draft is trained on them."""

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from threading import Thread
from typing import Self

from specchat.derivation.answer_store import AnswerStore
from specchat.derivation.example_prompts import Conversation, ExamplePrompts
from specchat.engine.api import Loading
from specchat.errors import Cancelled
from specchat.gguf.reader import read_header
from specchat.llama.batch_sampling import BatchSampler, SampledAnswer
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.model_copies import Copy, write_copy
from specchat.options.declarations import LoadOptions
from specchat.planning.context_shape import ContextShape, ModelOptions
from specchat.planning.memory import Sizes
from specchat.prompts.chat_text import tokenize_chat

LENGTH = 448
"""The most tokens of a prompt with its answer, for a typical chat template."""
LEAST_SEQUENCES, MOST_SEQUENCES = 4, 64
LARGEST_CACHE = 2**31
"""Bytes of KV cache for the texts that are sampled together; large targets get fewer texts."""
LONGEST_PROMPT = 256
TEMPERATURES = (0.0, 0.8)
SELF_ASKED, ASKING_TEMPERATURE = 0.35, 1.0
"""The share of texts in which the target writes a question, and how freely.

After the beginning of its template, a chat model writes what users ask (Xu et al. 2024, "Magpie").
"""
PER_FILE, LARGEST_FILE = 100, 2**28
"""The answers in one file, and about how many bytes of layers' inputs it has at most."""
LARGEST_COPIED = 2**29
"""Targets up to this many bytes are converted to bfloat16, which is faster in large batches."""
BF16 = 32


@dataclass(frozen=True, slots=True)
class TrainingPrompts:
    """The target that answers, and the user's own texts and questions."""

    loading: Loading
    texts: Sequence[str] = ()
    questions: Sequence[str] = ()


class AnswerSampling(AbstractContextManager["AnswerSampling"]):
    """A thread that fills a store with answers until the block ends."""

    def __init__(
        self,
        wanted: TrainingPrompts,
        work: Path,
        store: AnswerStore,
        threads: int,
        layers: Sequence[int] = (),
    ) -> None:
        """Sample in a thread; answers keep the inputs of these `layers` of the target."""
        self._wanted, self._work, self._store, self._threads = wanted, work, store, threads
        self._layers = layers
        self.why_full = ""
        """The reason why sampling ended for lack of room, or empty."""
        self._abort = AbortFlag()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="sampling", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the thread and keep its answers; stopping twice does nothing."""
        self._abort.set()
        if self._thread.is_alive():
            self._thread.join()

    def check(self) -> None:
        """Raise the error that ended the sampling, if any."""
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            with suppress(Cancelled):
                if not self._is_full():
                    self._sample()
        except BaseException as error:  # raised by `check`, in the thread that waits  # noqa: BLE001
            self._error = error

    def _is_full(self) -> bool:
        """Return True if the store has no room for more answers, and record why."""
        self.why_full = self._store.why_full
        return bool(self.why_full)

    def _sample(self) -> None:
        """Sample answers until stopped; the number of earlier ones is the seed."""
        options = ModelOptions(**self._wanted.loading.values(LoadOptions))
        seed = len(self._store.training)
        prompts = ExamplePrompts(seed, self._wanted.texts, self._wanted.questions)
        batch: list[SampledAnswer] = []
        with Model(self._fast_target(), options) as model:
            beginning = shared_beginning(model)
            with BatchSampler(
                model,
                num_sequences(model.sizes),
                LENGTH + more_room(beginning),
                threads=self._threads,
                seed=seed,
                beginning=beginning,
                layers=self._layers,
                abort=self._abort,
            ) as sampler:
                asked = self._asked(model, prompts, seed, beginning)
                try:
                    for answer in sampler.answers(asked, LENGTH - LONGEST_PROMPT):
                        if answer.origin is None:
                            prompts.ask(text_of(model, answer).strip() or "?")
                            continue
                        batch.append(answer)
                        prompts.learn(answer.origin, text_of(model, answer))
                        num_bytes = sum(part.nbytes for sampled in batch for part in sampled.inputs)
                        if len(batch) == PER_FILE or num_bytes > LARGEST_FILE:
                            self._store.add(batch)
                            batch = []
                            if self._is_full():
                                return
                finally:
                    if batch:
                        self._store.add(batch)

    def _asked(
        self, model: Model, prompts: ExamplePrompts, seed: int, beginning: list[int]
    ) -> Iterator[SampledAnswer]:
        """Yield prompts and beginnings of questions as tokens, skipping those that are too long.

        Raises Cancelled when stopped.
        """
        chance = random.Random(seed)  # noqa: S311  # chooses temperatures
        longest = LONGEST_PROMPT + more_room(beginning)
        for conversation in prompts:
            if self._abort.is_set():
                raise Cancelled("stopped while answers were sampled")
            while len(beginning) > 1 and chance.random() < SELF_ASKED:
                yield SampledAnswer(list(beginning), ASKING_TEMPERATURE)
            tokens = tokenized(model, conversation)
            if 0 < len(tokens) <= longest:
                yield SampledAnswer(tokens, chance.choice(TEMPERATURES), conversation)

    def _fast_target(self) -> Path:
        """Return the target, as bfloat16 if it is small."""
        target, path = self._wanted.loading.target, self._work / "target.gguf"
        if read_header(target).file_bytes > LARGEST_COPIED:
            return target
        if not path.exists():
            part = path.with_suffix(".part")
            write_copy(Copy(str(target), str(part), file_type=BF16))
            part.replace(path)
        return path


def num_sequences(sizes: Sizes) -> int:
    """Return how many texts to sample together."""
    fitting = LARGEST_CACHE // max(1, sizes.cache(ContextShape(LENGTH)))
    return max(LEAST_SEQUENCES, min(MOST_SEQUENCES, fitting))


def more_room(beginning: Sequence[int]) -> int:
    """Return how many tokens the template's beginning adds to the length allowed for a text."""
    return max(0, len(beginning) - LONGEST_PROMPT // 2)


def tokenized(model: Model, conversation: Conversation) -> list[int]:
    """Return a conversation as tokens, without a chat template the text of its messages."""
    if model.header.chat_template is not None:
        return tokenize_chat(model, conversation)
    text = "\n\n".join(message["content"] for message in conversation)
    return model.vocabulary.tokenize(text, add_special=True, parse_special=False)


def shared_beginning(model: Model) -> list[int]:
    """Return the tokens that the template puts before each question."""
    two = [tokenized(model, [{"role": "user", "content": letter}]) for letter in "AB"]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*two, strict=False))
    return [token for token, _ in same]


def text_of(model: Model, answer: SampledAnswer) -> str:
    """Return the text of a sampled answer."""
    return b"".join(map(model.vocabulary.piece, answer.tokens)).decode("utf-8", "replace")

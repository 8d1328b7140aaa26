"""A target's sampled answers, in files of some hundred, and the batches made from them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from shutil import disk_usage
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from specchat.llama.batch_sampling import LIKELIEST, SampledAnswer
from specchat.system.private_files import write_private

HELD_OUT = 40
"""One answer in this many is held out to measure agreement."""
PADDING = 16
SORTED_AT_ONCE = 512
ANSWERS, INPUTS = "answers-{:05}.npz", "inputs-{:05}.npy"
LARGEST_STORE, LEAST_FREE = 64e9, 4e9
"""Bytes: no answers are added to a larger store, or with less free space than this."""
DAMAGES = (OSError, ValueError, KeyError, EOFError, RuntimeError, BadZipFile, TokenError)
"""What reading a damaged file raises: RuntimeError and TokenError for changed headers."""

Integers = NDArray[np.int32]
Logs = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """The inputs of some target layers at an answer's tokens, loaded from a file on use."""

    path: Path
    first: int
    count: int

    def load(self) -> NDArray[np.float16]:
        """Return the rows, (tokens, width)."""
        return _rows(self.path)[self.first : self.first + self.count]


@dataclass(frozen=True, slots=True)
class Example:
    """An answer after its prompt, with the target's likeliest tokens at each of its tokens.

    `likeliest` and `logs`, the logarithms of their probabilities, have shape (answer, LIKELIEST).
    `inputs` holds the inputs of the target's layers, if wanted; those of the last token, which was
    never evaluated, are zeros.
    """

    tokens: Integers
    prompt: int
    temperature: float
    likeliest: Integers
    logs: Logs
    inputs: LayerInputs | None = None


@dataclass(frozen=True, slots=True)
class AnswerBatch:
    """Examples side by side, padded at the end, of shape (examples, length).

    `positions` are the flat positions of the tokens before those of the answers. `inputs` has the
    layers' inputs, (examples, length, width), None if not wanted.
    """

    tokens: Integers
    positions: Integers
    likeliest: Integers
    logs: NDArray[np.float32]
    inputs: NDArray[np.float16] | None = None


class AnswerStore:
    """The answers in a folder, each file read once."""

    def __init__(self, folder: Path, *, inputs_width: int = 0) -> None:
        """Read the answers of earlier runs; with a width, only those with layers' inputs of it."""
        self._folder, self._inputs_width = folder, inputs_width
        self._known = set[Path]()
        self.training: list[Example] = []
        self.held_out: list[Example] = []
        self.refresh()

    @property
    def why_full(self) -> str:
        """The reason not to add answers, empty if there is none."""
        used = sum(path.stat().st_size for path in self._folder.glob("*.np[yz]"))
        if used > LARGEST_STORE:
            return f"{self._folder} has {used / 1e9:.0f} GB of answers"
        is_scarce = disk_usage(self._folder).free < LEAST_FREE
        return "the disk is nearly full" if is_scarce else ""

    def add(self, answers: Sequence[SampledAnswer]) -> None:
        """Write answers to a new file."""
        numbers = [int(path.stem[-5:]) for path in self._folder.glob("answers-*.npz")]
        number = max(numbers, default=-1) + 1
        if answers[0].inputs:
            self._write_inputs(number, answers)
        data = BytesIO()
        np.savez(
            data,
            tokens=np.concatenate([np.array(a.prompt + a.tokens, np.int32) for a in answers]),
            prompts=np.array([len(a.prompt) for a in answers], np.int32),
            answers=np.array([len(a.tokens) for a in answers], np.int32),
            temperatures=np.array([a.temperature for a in answers], np.float32),
            likeliest=np.concatenate([np.stack(a.likeliest) for a in answers]),
            logs=np.concatenate([np.stack(a.logs) for a in answers]),
        )
        write_private(self._folder / ANSWERS.format(number), data.getvalue())

    def _write_inputs(self, number: int, answers: Sequence[SampledAnswer]) -> None:
        """Write the layers' inputs at each token; an answer's last token was never evaluated."""
        data = BytesIO()
        unread = np.zeros((1, answers[0].inputs[0].shape[1]), np.float16)
        np.save(data, np.concatenate([part for a in answers for part in (*a.inputs, unread)]))
        write_private(self._folder / INPUTS.format(number), data.getvalue())

    def refresh(self) -> None:
        """Read new files, skipping damaged ones."""
        for path in sorted(set(self._folder.glob("answers-*.npz")) - self._known):
            self._known.add(path)
            with suppress(*DAMAGES):
                for number, example in enumerate(_examples(path, self._inputs_width)):
                    of_held_out = number % HELD_OUT == 0
                    (self.held_out if of_held_out else self.training).append(example)

    def batches(self, size: int, seed: int) -> Iterator[AnswerBatch]:
        """Yield batches of about `size` tokens endlessly; none if there are no answers.

        Answers in new files join after each round through all of them.
        """
        random = np.random.default_rng(seed)
        while True:
            self.refresh()
            if not self.training:
                return
            order = random.permutation(len(self.training))
            for first in range(0, len(order), SORTED_AT_ONCE):
                chosen = [self.training[index] for index in order[first : first + SORTED_AT_ONCE]]
                groups = list(
                    _groups(sorted(chosen, key=lambda example: len(example.tokens)), size)
                )
                for index in random.permutation(len(groups)):
                    yield collate(groups[index])


def _examples(path: Path, inputs_width: int) -> list[Example]:
    """Return the answers in a file; with a width, also the layers' inputs from the file beside it.

    Raises one of DAMAGES if one of the files is damaged or missing.
    """
    fields = _fields(path)
    lengths = fields["prompts"] + fields["answers"]
    ends, answers = np.cumsum(lengths), np.cumsum(fields["answers"])
    inputs = path.with_name(INPUTS.format(int(path.stem[-5:]))) if inputs_width else None
    if inputs:
        _require(_rows(inputs), np.float16, (len(fields["tokens"]), inputs_width))
    rows = zip((ends - lengths).tolist(), lengths.tolist(), strict=True)
    columns = (
        np.split(fields["tokens"], ends[:-1]),
        fields["prompts"].tolist(),
        fields["temperatures"].tolist(),
        np.split(fields["likeliest"], answers[:-1]),
        np.split(fields["logs"], answers[:-1]),
        [LayerInputs(inputs, *row) if inputs else None for row in rows],
    )
    return [Example(*values) for values in zip(*columns, strict=True)]


def _fields(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of answers; raises as `_examples` does."""
    names = ("tokens", "prompts", "answers", "temperatures", "likeliest", "logs")
    with path.open("rb") as data, NpzFile(data) as file:
        fields = {name: np.asarray(file[name]) for name in names}
    prompts, answers = fields["prompts"], fields["answers"]
    for array, kind in (
        (prompts, np.int32),
        (answers, np.int32),
        (fields["temperatures"], np.float32),
    ):
        _require(array, kind, (prompts.size,))
    num_tokens = int(answers.sum())
    _require(fields["tokens"], np.int32, (int(prompts.sum()) + num_tokens,))
    _require(fields["likeliest"], np.int32, (num_tokens, LIKELIEST))
    _require(fields["logs"], np.float16, (num_tokens, LIKELIEST))
    return fields


def _rows(path: Path) -> NDArray[np.float16]:
    """Return the rows in a file of layers' inputs; rows are read from the disk when they are used.

    Raises one of DAMAGES.
    """
    return np.lib.format.open_memmap(path, mode="r")


def _require(array: NDArray[Any], kind: type[np.generic], shape: tuple[int, ...]) -> None:
    """Raise ValueError if an array has another type or shape."""
    if array.dtype != kind or array.shape != shape:
        raise ValueError(f"{array.dtype} of {array.shape}, not {kind.__name__} of {shape}")


def _groups(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """Yield groups of examples of similar length, as many as fit."""
    group: list[Example] = []
    for example in examples:
        if group and (len(group) + 1) * _padded(len(example.tokens)) > size:
            yield group
            group = []
        group.append(example)
    if group:
        yield group


def collate(examples: Sequence[Example]) -> AnswerBatch:
    """Return examples as a batch."""
    length = _padded(max(len(example.tokens) for example in examples))
    tokens = np.zeros((len(examples), length), np.int32)
    loaded = [example.inputs.load() for example in examples if example.inputs]
    inputs = np.zeros((len(examples), length, loaded[0].shape[1]), np.float16) if loaded else None
    positions = []
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)] = example.tokens
        if inputs is not None:
            inputs[row, : len(example.tokens)] = loaded[row]
        positions.append(np.arange(example.prompt - 1, len(example.tokens) - 1) + row * length)
    return AnswerBatch(
        tokens,
        np.concatenate(positions).astype(np.int32),
        np.concatenate([example.likeliest for example in examples]),
        np.concatenate([example.logs for example in examples]).astype(np.float32),
        inputs,
    )


def _padded(length: int) -> int:
    return -(-length // PADDING) * PADDING

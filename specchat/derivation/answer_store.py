"""A target's sampled answers, kept in files of some hundred, and the batches made of them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from specchat.llama.batch_sampling import Answer
from specchat.private_files import write_private

HELD_OUT = 40
"""One answer in this many is not trained on: agreement is measured with it."""
PADDING = 16
SORTED_AT_ONCE = 512
ANSWERS, READ = "answers-{:05}.npz", "read-{:05}.npy"

Numbers = NDArray[np.int32]
Logs = NDArray[np.float16]


def _nothing() -> NDArray[np.float16]:
    """Return the rows of answers without any."""
    return np.zeros((0, 0), np.float16)


@dataclass(frozen=True, slots=True)
class Example:
    """An answer after its prompt, with the target's likeliest tokens at each of its tokens.

    `likeliest` and `logs`, the logarithms of their probabilities, have shape (answer, LIKELIEST).
    `read` is what layers of the target read at each token, (tokens, width), if that is kept; the
    last token was never evaluated.
    """

    tokens: Numbers
    prompt: int
    temperature: float
    likeliest: Numbers
    logs: Logs
    read: NDArray[np.float16] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples side by side, padded at the end, of shape (examples, length).

    `places` are the flat positions after which the tokens of the answers follow. `read` has what
    layers read there: (examples, length, width), with width 0 where that is not kept.
    """

    tokens: Numbers
    places: Numbers
    likeliest: Numbers
    logs: NDArray[np.float32]
    read: NDArray[np.float16] = field(default_factory=_nothing)


class AnswerStore:
    """The answers in a folder, each file read once."""

    def __init__(self, folder: Path, *, with_read: bool = False) -> None:
        """Read the answers of earlier runs, only those with what layers read if `with_read`."""
        self._folder, self._with_read = folder, with_read
        self._read = set[Path]()
        self.training: list[Example] = []
        self.held_out: list[Example] = []
        self.refresh()

    def add(self, answers: Sequence[Answer]) -> None:
        """Write answers to a new file."""
        number = len(list(self._folder.glob("*.npz")))
        if answers[0].read:
            self._write_read(number, answers)
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

    def _write_read(self, number: int, answers: Sequence[Answer]) -> None:
        """Write what layers read at each token; the last one of an answer was never evaluated."""
        data = BytesIO()
        unread = np.zeros((1, answers[0].read[0].shape[1]), np.float16)
        np.save(data, np.concatenate([part for each in answers for part in (*each.read, unread)]))
        write_private(self._folder / READ.format(number), data.getvalue())

    def refresh(self) -> None:
        """Read new files; a damaged one is passed over."""
        for path in sorted(set(self._folder.glob("*.npz")) - self._read):
            self._read.add(path)
            with suppress(OSError, ValueError, KeyError, BadZipFile):
                for number, example in enumerate(_examples(path)):
                    if self._with_read and not example.read.size:
                        continue
                    of_held_out = number % HELD_OUT == 0
                    (self.held_out if of_held_out else self.training).append(example)

    def batches(self, size: int, seed: int) -> Iterator[Batch]:
        """Yield batches of about `size` tokens without end; those of new files join when read."""
        random = np.random.default_rng(seed)
        while True:
            self.refresh()
            order = random.permutation(len(self.training))
            for first in range(0, len(order), SORTED_AT_ONCE):
                chosen = [self.training[place] for place in order[first : first + SORTED_AT_ONCE]]
                groups = list(_groups(sorted(chosen, key=lambda each: len(each.tokens)), size))
                for place in random.permutation(len(groups)):
                    yield collate(groups[place])


def _examples(path: Path) -> Iterator[Example]:
    with path.open("rb") as data, np.load(data, allow_pickle=False) as file:
        fields = {name: file[name] for name in file.files}
    ends, answers = np.cumsum(fields["prompts"] + fields["answers"]), np.cumsum(fields["answers"])
    columns = (
        np.split(fields["tokens"], ends[:-1]),
        fields["prompts"].tolist(),
        fields["temperatures"].tolist(),
        np.split(fields["likeliest"], answers[:-1]),
        np.split(fields["logs"], answers[:-1]),
        _read_by(path, ends),
    )
    for values in zip(*columns, strict=True):
        yield Example(*values)


def _read_by(answers: Path, ends: Numbers) -> Iterable[NDArray[np.float16]]:
    """Return what layers read in each of a file's answers, which stays in its file until used."""
    path = answers.with_name(answers.name.replace("answers", "read")).with_suffix(".npy")
    if not path.exists():
        return [_nothing()] * len(ends)
    read = np.load(path, mmap_mode="r")
    return (read[first:last] for first, last in pairwise((0, *ends.tolist())))


def _groups(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """Yield examples of similar lengths together, as many as fit."""
    group: list[Example] = []
    for example in examples:
        if group and (len(group) + 1) * _padded(len(example.tokens)) > size:
            yield group
            group = []
        group.append(example)
    if group:
        yield group


def collate(examples: Sequence[Example]) -> Batch:
    """Return examples as a batch."""
    length = _padded(max(len(each.tokens) for each in examples))
    tokens = np.zeros((len(examples), length), np.int32)
    read = np.zeros((len(examples), length, examples[0].read.shape[1]), np.float16)
    places = []
    for row, each in enumerate(examples):
        tokens[row, : len(each.tokens)] = each.tokens
        read[row, : len(each.read)] = each.read
        places.append(np.arange(each.prompt - 1, len(each.tokens) - 1) + row * length)
    return Batch(
        tokens,
        np.concatenate(places).astype(np.int32),
        np.concatenate([each.likeliest for each in examples]),
        np.concatenate([each.logs for each in examples]).astype(np.float32),
        read,
    )


def _padded(length: int) -> int:
    return -(-length // PADDING) * PADDING

"""A target's sampled answers, kept in files of some hundred, and the batches made of them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
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

Numbers = NDArray[np.int32]
Logs = NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Example:
    """An answer after its prompt, with the target's likeliest tokens at each of its tokens.

    `likeliest` and `logs`, the logarithms of their probabilities, have shape (answer, LIKELIEST).
    """

    tokens: Numbers
    prompt: int
    temperature: float
    likeliest: Numbers
    logs: Logs


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples side by side, padded at the end, of shape (examples, length).

    `places` are the flat positions after which the tokens of the answers follow.
    """

    tokens: Numbers
    places: Numbers
    likeliest: Numbers
    logs: NDArray[np.float32]


class AnswerStore:
    """The answers in a folder, each file read once."""

    def __init__(self, folder: Path) -> None:
        """Read the answers of earlier runs."""
        self._folder = folder
        self._read = set[Path]()
        self.training: list[Example] = []
        self.held_out: list[Example] = []
        self.refresh()

    def add(self, answers: Sequence[Answer]) -> None:
        """Write answers to a new file."""
        number = len(list(self._folder.glob("*.npz")))
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
        write_private(self._folder / f"answers-{number:05}.npz", data.getvalue())

    def refresh(self) -> None:
        """Read new files; a damaged one is passed over."""
        for path in sorted(set(self._folder.glob("*.npz")) - self._read):
            self._read.add(path)
            with suppress(OSError, ValueError, KeyError, BadZipFile):
                for number, example in enumerate(_examples(path)):
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
    )
    for values in zip(*columns, strict=True):
        yield Example(*values)


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
    places = []
    for row, each in enumerate(examples):
        tokens[row, : len(each.tokens)] = each.tokens
        places.append(np.arange(each.prompt - 1, len(each.tokens) - 1) + row * length)
    return Batch(
        tokens,
        np.concatenate(places).astype(np.int32),
        np.concatenate([each.likeliest for each in examples]),
        np.concatenate([each.logs for each in examples]).astype(np.float32),
    )


def _padded(length: int) -> int:
    return -(-length // PADDING) * PADDING

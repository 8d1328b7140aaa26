"""Reads Spec-Bench's prompts, by which papers compare ways of speculative decoding.

The file is data/spec_bench/question.jsonl of https://github.com/hemingkx/Spec-Bench (Apache-2.0;
Xia et al. 2024): one JSON object per line, with the category and the user's turns of a prompt.
"""

import hashlib
from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import msgspec

from specchat.bench.tasks import Prompt, Task
from specchat.errors import InvalidOption

ADDRESS = "https://github.com/hemingkx/Spec-Bench"
LARGEST_FILE = 1 << 24
MT_BENCH = "mt_bench"
"""The task of multi-turn conversations, under the name that Spec-Bench's reports have for it."""
MT_BENCH_CATEGORIES = frozenset(
    {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
)


class _Question(msgspec.Struct):
    category: Annotated[str, msgspec.Meta(min_length=1, max_length=40)]
    turns: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(min_length=1)
    ]


def read_spec_bench(path: Path, limit: int | None = None) -> list[Task]:
    """Return the tasks of a file in Spec-Bench's format, or a sample of `limit` of its prompts.

    The prompts of a task are in an order that looks random but is the same every time. A sample has
    the first ones of every task, as evenly as possible, so that a larger one holds it whole. Raises
    InvalidOption if the file cannot be read or a line has no prompt.
    """
    tasks: dict[str, list[Prompt]] = {}
    for number, line in enumerate(_content(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            question = msgspec.json.decode(line, type=_Question)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidOption(
                f"{path}, line {number} is not a prompt of Spec-Bench: {error}"
            ) from None
        category = question.category
        name = MT_BENCH if category in MT_BENCH_CATEGORIES else category
        tasks.setdefault(name, []).append(question.turns)
    if not tasks:
        raise InvalidOption(f"{path} is empty: get question.jsonl from {ADDRESS}")
    for prompts in tasks.values():
        prompts.sort(key=_digest)
    places = [(place, name) for name, each in tasks.items() for place in range(len(each))]
    places.sort(key=itemgetter(0))
    counts = Counter(name for _, name in places[:limit])
    return [Task(name, tuple(tasks[name][:count])) for name, count in counts.items()]


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise InvalidOption(f"{path} is not a file: get question.jsonl from {ADDRESS}")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidOption(f"cannot read {path}: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise InvalidOption(f"{path} is larger than {LARGEST_FILE >> 20} MiB: split it")
    return content


def _digest(prompt: Prompt) -> bytes:
    return hashlib.sha256("\n".join(prompt).encode()).digest()

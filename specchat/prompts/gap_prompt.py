"""Prompts to fill in the middle of a text, as llama-server writes them for code models.

Equal beginnings of prompts are read only once, so what may grow with each keystroke stands late,
and what is cut off is cut at places that stay while the text grows.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from specchat.llama.tokenizer import GapTokens, Vocabulary
from specchat.prompts.prompt_room import LONG_TOKEN, PromptRoom
from specchat.requests.gap import ContextFile, Gap

NEAR = 2048
"""Tokens around a gap that are read: three of four before it."""
NUM_MARKS = 4
REPOSITORY, FILE = "myproject\n", "filename\n"
"""The names that llama-server gives to the repository and to the file with the gap."""
SEPARATOR = "\n\n--- snippet ---\n\n"
"""What stands before a text of the context where the model has no token for that."""

Items = TypeVar("Items", str, list[int])


def gap_prompt(
    vocabulary: Vocabulary, gap: Gap, room: int, prompt_room: PromptRoom
) -> list[int] | None:
    """Return a prompt of at most `room` tokens if the gap makes room, else of all its text.

    None for a model without tokens for this. Raises ContextFull for far too much text.
    """
    marks = vocabulary.gap_tokens()
    if marks is None:
        return None
    tokenize = partial(vocabulary.tokenize_more, parse_special=False)
    files: list[int] = []
    if gap.makes_room:
        near = min(NEAR, room - NUM_MARKS)
        num_before, num_after = near * 3 // 4, near // 4
        before = _end_of(tokenize(_end_of(gap.before, num_before * LONG_TOKEN)), num_before)
        after = tokenize(gap.after[: num_after * LONG_TOKEN])[:num_after]
        files = _files(vocabulary, marks, gap.files, room - NUM_MARKS - near)
    else:
        for text in (gap.before, gap.after):
            prompt_room.require(text)
        before, after = tokenize(gap.before), tokenize(gap.after)
    bos = vocabulary.bos()
    begin = [] if bos is None else [bos]
    return [*begin, *files, marks.before, *before, marks.after, *after, marks.middle]


def _files(
    vocabulary: Vocabulary, marks: GapTokens, files: Sequence[ContextFile], room: int
) -> list[int]:
    """Return the last of the files that fit, with their names if the model knows these."""
    tokenize = partial(vocabulary.tokenize_more, parse_special=False)
    begin, end = list[int](), list[int]()
    if marks.repository is not None:
        begin = [marks.repository, *tokenize(REPOSITORY)]
    if marks.file is not None:
        end = [marks.file, *tokenize(FILE)]
    room -= len(begin) + len(end)
    parts: list[int] = []
    for name, text in reversed(files):
        if len(name) + len(text) > room * LONG_TOKEN:
            break
        title = tokenize(SEPARATOR) if marks.file is None else [marks.file, *tokenize(f"{name}\n")]
        part = [*title, *tokenize(text)]
        if len(part) > room:
            break
        room -= len(part)
        parts = [*part, *parts]
    return [*begin, *parts, *end] if parts else []


def _end_of(items: Items, most: int) -> Items:
    """Return at most that much of the end, which begins at the same place for many lengths."""
    step = max(1, most // 4)
    excess = max(0, len(items) - most)
    return items[-(-excess // step) * step :]

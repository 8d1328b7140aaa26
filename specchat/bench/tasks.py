"""The benchmark's tasks: prompts by kind of use, read from tasks.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Prompt: TypeAlias = tuple[str, ...]
"""The user's turns of a conversation, mostly one."""


@dataclass(frozen=True, slots=True)
class Task:
    """A kind of use, with prompts of which each round takes the next one."""

    name: str
    prompts: tuple[Prompt, ...]


_CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
TEXTS: dict[str, str] = _CONTENT["texts"]
"""The texts that prompts refer to, by their placeholder names."""


TASKS = tuple(
    Task(task["name"], tuple((prompt.format_map(TEXTS),) for prompt in task["prompts"]))
    for task in _CONTENT["tasks"]
)

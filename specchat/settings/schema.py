"""Every setting there is, in one list: the file, the environment and `config show` follow it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat import drafters
from specchat.errors import InvalidOption
from specchat.settings.kinds import (
    Choice,
    FilePath,
    Keys,
    Kind,
    Number,
    Shares,
    Switch,
    Text,
    Whole,
)

__all__ = [
    "KEYS",
    "PREFIX",
    "SETTINGS",
    "TABLES",
    "Setting",
    "find_setting",
    "is_key_name",
    "nearest",
]

KEYS = "keys"
"""The table that has no names of its own: an action of the chat and its key or keys."""

PREFIX = "SPECCHAT_"
"""How the environment variables of all settings begin."""

CACHE_TYPES = Choice(("auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"))
KEY_NAME = re.compile(r"keys\.[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting; a default of None means that nothing is set, and `example` shows a value."""

    name: str
    kind: Kind
    default: Any
    help: str
    example: Any = None

    @property
    def table(self) -> str:
        """The table of the file it stands in."""
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        """Its name in that table."""
        return self.name.partition(".")[2]

    @property
    def environment(self) -> str:
        """The environment variable that sets it."""
        return f"{PREFIX}{self.key.upper()}"

    def require(self, value: object, told: Callable[[str], Exception] = InvalidOption) -> None:
        """Raise what `told` makes of a sentence where a value does not keep the rule."""
        if not self.kind.takes(value):
            raise told(f"{self.name} must be {self.kind.rule}, not {_shown(value)}")


SETTINGS = (
    Setting("model.pair", Text("the name of a pair in quotes"), None, "A pair by name.", "demo"),
    Setting(
        "model.target", FilePath(), None, "A GGUF file as target, where no pair is named.",
        "~/models/target.gguf",
    ),
    Setting("model.draft", FilePath(), None, "Its draft model.", "~/models/draft.gguf"),
    Setting("model.ctx", Whole(0, 2**27), 0, "Context length in tokens; 0 is the model's own."),
    Setting(
        "model.gpu_layers", Whole(0, word="auto"), "auto",
        "Layers on the GPU; auto: as many as fit.",
    ),
    Setting(
        "model.draft_gpu_layers", Whole(0, word="auto"), "auto",
        "Layers of the draft on the GPU; auto: as gpu_layers says.",
    ),
    Setting(
        "model.tensor_split", Shares(16), None,
        "The parts that several GPUs take; unset: as each has memory.", "3,1",
    ),
    Setting(
        "model.split_mode", Choice(("layer", "row", "none")), "layer",
        "How several GPUs share a model; none: main_gpu alone.",
    ),
    Setting("model.main_gpu", Whole(0, 15), 0, "The GPU that is used alone, counted from 0."),
    Setting("model.threads", Whole(1, 512, "auto"), "auto", "Threads; auto: physical cores."),
    Setting(
        "model.flash_attention", Choice(("auto", "on", "off")), "auto",
        "Attention in one pass over the cache.",
    ),
    Setting(
        "model.cache_type_k", CACHE_TYPES, "auto",
        "How the cache keeps keys; auto: f16, or q8_0 where that makes all fit on the GPU.",
    ),
    Setting("model.cache_type_v", CACHE_TYPES, "auto", "How the cache keeps values."),
    Setting(
        "decoding.drafter", Choice(drafters.choices), drafters.AUTO,
        "What proposes tokens; auto: all that can, by what each brings.",
    ),
    Setting(
        "decoding.draft_length", Whole(0, 32, "auto"), "auto",
        "Tokens proposed in a step; auto: as many as pay, step by step.",
    ),
    Setting("sampling.temperature", Number(0), 0.8, "How much is left to chance; 0 is greedy."),
    Setting("sampling.top_k", Whole(0), 40, "The best tokens to choose from; 0 is all."),
    Setting(
        "sampling.top_p", Number(0, 1, is_above=True), 0.95,
        "The share of probability to choose from; 1 is all.",
    ),
    Setting(
        "sampling.min_p", Number(0, 1), 0.05,
        "The smallest probability, as a share of the largest; 0 is off.",
    ),
    Setting(
        "sampling.repeat_penalty", Number(0, is_above=True), 1.0,
        "Makes recent tokens less likely; 1 is off.",
    ),
    Setting(
        "sampling.presence_penalty", Number(), 0.0, "Taken off tokens that occurred; 0 is off."
    ),
    Setting(
        "sampling.frequency_penalty", Number(), 0.0, "Taken off per occurrence; 0 is off."
    ),
    Setting(
        "sampling.seed", Whole(0, word="random"), "random", "The same seed gives the same answer."
    ),
    Setting(
        "sampling.max_tokens", Whole(1, word="unlimited"), "unlimited",
        "Tokens to answer with at most.",
    ),
    Setting(
        "chat.system_prompt", Text(can_be_empty=True), None,
        "What the model is told before the conversation.", "Answer briefly.",
    ),
    Setting("chat.history", Switch(), True, "Keep conversations."),
    Setting("network.offline", Switch(), False, "Ask nothing of the network."),
    Setting("screen.theme", Text(), "textual-dark", "The colours of the chat."),
    Setting("screen.statistics", Switch(), True, "Show the panel of statistics."),
    Setting("screen.conversations", Switch(), False, "Show the list of conversations."),
    Setting("screen.colour_tokens", Switch(), False, "Colour tokens by who proposed them."),
    Setting("screen.animations", Switch(), True, "Let the screen move."),
    Setting("screen.fold_reasoning", Switch(), True, "Fold up the model's reasoning."),
    Setting(
        "screen.offer_models", Switch(), True,
        "Offer other pairs while the demo pair is the only one here.",
    ),
)  # fmt: skip
"""Every setting but the keys, in the order of the file."""

TABLES = (*dict.fromkeys(setting.table for setting in SETTINGS), KEYS)


def find_setting(name: str) -> Setting:
    """Return the setting of that name; InvalidOption names the nearest if there is none."""
    if is_key_name(name):
        return Setting(name, Keys(), None, "The key of an action.")
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise InvalidOption(f"there is no setting {name}{nearest(name)}")


def is_key_name(name: str) -> bool:
    """Say whether a name is that of an action in the table of keys."""
    return KEY_NAME.fullmatch(name) is not None


def nearest(name: str) -> str:
    """Return the end of a sentence that names the setting most like a name, if there is one."""
    import difflib

    same_key = [setting.name for setting in SETTINGS if setting.key == name.rpartition(".")[2]]
    names = [*(setting.name for setting in SETTINGS), *TABLES]
    found = same_key or difflib.get_close_matches(name, names, 1)
    return f"; the nearest is {found[0]}" if found else ""


def _shown(value: object) -> str:
    """Return a wrong value as it stands in a sentence, cut where it is long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str | Path) else _digits(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _digits(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to write whole numbers of thousands of digits
        return "a number that long"

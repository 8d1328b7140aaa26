"""The names of settings on the screen, and their order: those that are changed most come first."""

from collections.abc import Sequence

from specchat.options.option import Option
from specchat.settings.schema import SETTINGS

FIRST = (
    "screen.theme", "model.pair", "chat.think", "model.ctx", "chat.system_prompt",
    "sampling.temperature", "decoding.drafter",
)  # fmt: skip
MOST_USED = "Most used"
GROUPS = {
    "screen": "Screen",
    "chat": "Conversations",
    "decoding": "Speculation",
    "model": "Model and memory",
    "sampling": "Sampling",
    "network": "Network",
    "server": "Server",
}
"""The headings of the tables of the settings file, in the order of the list."""
NAMES = {
    "pair": "Model",
    "target": "Target file",
    "draft": "Draft model",
    "ctx": "Context size",
    "gpu_layers": "GPU layers",
    "draft_gpu_layers": "GPU layers, draft model",
    "on_cpu": "On the CPU, of the target",
    "tensor_split": "Share of each GPU",
    "threads": "CPU threads",
    "cache_type": "KV cache",
    "exact": "Exact verification",
    "mmap": "Map files into memory",
    "mlock": "Lock in memory",
    "learn": "Remember measurements",
    "top_k": "Top-k",
    "top_p": "Top-p",
    "min_p": "Min-p",
    "repeat_last_n": "Tokens that penalties see",
    "max_tokens": "Longest answer",
    "think": "Thinking",
    "stop": "Stop texts",
    "history": "Save conversations",
    "unload_after": "Unload when idle",
    "repeat_limit": "Stop repeating answers",
    "offline": "Stay offline",
    "statistics": "Stats panel",
    "conversations": "List of conversations",
    "colour_tokens": "Token colours",
    "ghost": "Ghost drafts",
    "pictures": "Images",
    "fold_reasoning": "Fold reasoning",
    "offer_models": "Offer models",
    "offer_race": "Offer a race",
}
"""The names that do not follow from the key."""


def setting_title(setting: Option) -> str:
    """Return the name of a setting to show."""
    return NAMES.get(setting.key) or setting.key.replace("_", " ").capitalize()


def setting_group(setting: Option) -> str:
    """Return the heading under which a setting is listed."""
    return MOST_USED if setting.name in FIRST else GROUPS[setting.table]


def settings_in_order() -> Sequence[Option]:
    """Return all settings in the order of the list."""
    tables = list(GROUPS)

    def place(setting: Option) -> tuple[int, int]:
        is_first = setting.name in FIRST
        return (0, FIRST.index(setting.name)) if is_first else (1, tables.index(setting.table))

    return sorted(SETTINGS, key=place)

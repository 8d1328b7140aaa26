"""Every option once: name, type, range or choices, default and help.

Flags, environment variables, the settings file, the chat's settings screen, presets, pairs in
models.toml and the Python API are all made from these declarations:

    for option in fields(LoadOptions):
        print(option.name, option.description, option.default, option.help)

A new option is one more field. It imports nothing of specchat but errors and the drafters' names.
"""

from specchat.options.declarations import (
    DEFAULT_DRAFT_LENGTH,
    LONGEST_DRAFT,
    NO_DRAFT,
    CacheType,
    ChatOptions,
    FlashAttention,
    GenerateOptions,
    LoadOptions,
    NetworkOptions,
    PairOptions,
    Sampling,
    ScreenOptions,
    SplitMode,
)
from specchat.options.option import PREFIX, Option, declare
from specchat.options.option_fields import Options, fields, nearest, takes, values

__all__ = [
    "DEFAULT_DRAFT_LENGTH",
    "LONGEST_DRAFT",
    "NO_DRAFT",
    "PREFIX",
    "CacheType",
    "ChatOptions",
    "FlashAttention",
    "GenerateOptions",
    "LoadOptions",
    "NetworkOptions",
    "Option",
    "Options",
    "PairOptions",
    "Sampling",
    "ScreenOptions",
    "SplitMode",
    "declare",
    "fields",
    "nearest",
    "takes",
    "values",
]

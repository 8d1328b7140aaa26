"""The list of settings agrees with the options that the engine takes."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from specchat import drafters
from specchat.engine.api import Loading
from specchat.engine.generate_options import LONGEST_DRAFT, GenerateOptions
from specchat.engine.loader import constraints_of
from specchat.errors import InvalidOption
from specchat.settings import SETTINGS, Setting, find_setting
from specchat.settings.kinds import Choice, Number, Shares, Whole

WORDS: dict[str, Any] = {
    **dict.fromkeys(("threads", "gpu_layers", "draft_gpu_layers"), "auto"),
    "seed": "random",
    "max_tokens": "unlimited",
}
NUMBERS = [
    -1e9, -2, -1, -0.5, -1e-9, 0, 1e-9, 0.5, 0.95, 1, 1 + 1e-9, 1.5, 2, LONGEST_DRAFT,
    LONGEST_DRAFT + 1, 512, 513, 2**27, 2**27 + 1, 2**40, math.inf, -math.inf, math.nan,
]  # fmt: skip
OPTIONS = {"model": Loading, "decoding": GenerateOptions, "sampling": GenerateOptions}
SHARED = [
    setting
    for setting in SETTINGS
    if setting.table in OPTIONS and setting.key not in {"pair", "target", "draft"}
]
EDGES: list[Any] = [*NUMBERS, "auto", "on", "off", "f32", "f16", "q8_0", "q4_1", "q3", "maybe"]
EDGES += ["layer", "row", "none", "1", "3,1", "0,1", "0", "-1,2", "1,nan", "1,inf", "1," * 16 + "1"]


def engine_takes(setting: Setting, value: Any) -> bool:
    """Say whether the engine's options take a value; a word for no number is None there."""
    if value == WORDS.get(setting.key):
        value = None
    try:
        if setting.key == "tensor_split":
            value = tuple(map(float, value.split(",")))
        if setting.table == "model":
            constraints_of(Loading(Path("a.gguf"), **{setting.key: value}))
        else:
            GenerateOptions(**{setting.key: value})
    except (InvalidOption, TypeError, ValueError):
        return False
    return setting.key != "drafter" or value in drafters.choices()


@pytest.mark.parametrize("setting", SHARED, ids=lambda setting: setting.name)
def test_settings_take_what_the_engine_takes(setting: Setting) -> None:
    """At every edge of every range; the engine also takes floats for some whole numbers."""
    wanted = {Number: (int, float), Whole: (int, str), Choice: (str,), Shares: (str,)}[
        type(setting.kind)
    ]
    edges = [one for one in EDGES if isinstance(one, wanted)]

    assert [one for one in edges if setting.kind.takes(one)] == [
        one for one in edges if engine_takes(setting, one)
    ]
    assert any(setting.kind.takes(one) for one in edges)


@pytest.mark.parametrize("setting", SHARED, ids=lambda setting: setting.name)
def test_defaults_are_the_engines(setting: Setting) -> None:
    """What nobody sets is what the engine does by itself."""
    options: Any = OPTIONS[setting.table]
    default = {field.name: field.default for field in dataclasses.fields(options)}[setting.key]

    default = WORDS[setting.key] if default is None else default
    assert setting.default == (None if default == () else default)


def test_every_default_and_example_keeps_its_rule() -> None:
    """The documented file may be taken as it is."""
    for setting in SETTINGS:
        setting.require(setting.example if setting.default is None else setting.default)


def test_names_are_told_apart_in_the_environment() -> None:
    """No two settings share a variable, and none is that of the file's path."""
    names = [setting.environment for setting in SETTINGS]

    assert len({*names, "SPECCHAT_CONFIG", "SPECCHAT_DEBUG"}) == len(SETTINGS) + 2
    assert find_setting("sampling.top_k").environment == "SPECCHAT_TOP_K"


def test_an_unknown_name_is_refused() -> None:
    """With the nearest, where there is one."""
    with pytest.raises(InvalidOption, match=r"nearest is screen.theme"):
        find_setting("screen.them")
    with pytest.raises(InvalidOption, match=r"no setting qqqq$"):
        find_setting("qqqq")

"""Every option is declared once; the engine, the command line and the settings all follow."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specchat import Engine, drafter_registry
from specchat.cli.arguments import parse
from specchat.engine.api import LoadRequest
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption
from specchat.llama.model import CACHE_TYPES
from specchat.options.declarations import LONGEST_DRAFT, GenerateOptions, LoadOptions
from specchat.options.option import Option
from specchat.options.option_fields import Options
from specchat.requests.answer_request import ChatRequest, GenerateRequest
from specchat.settings.editor import documented_settings
from specchat.settings.schema import SETTINGS, find_setting
from tables import table

PACKAGE = Path(__file__).parents[2] / "specchat"
RANGES: dict[str, tuple[list[Any], list[Any]]] = {
    "ctx": ([0, 1, 2**27], [-1, 2**27 + 1, 1.0, True, None, "auto"]),
    "gpu_layers": ([0, 512, None, "auto"], [-1, 0.5, "none"]),
    "on_cpu": (
        ["none", "experts", "ffn", "experts:30", "ffn:12.3", "experts:0.7", None, "auto"],
        [
            "expert",
            "experts:0",
            "experts:0.0",
            "ffn:2.5",
            "ffn:",
            "ffn:-1",
            "none:3",
            "experts:1e3",
            5,
        ],
    ),
    "draft_gpu_layers": ([0, None, "auto"], [-1]),
    "tensor_split": (
        ["3,1", "0,1", (1.0,), [], "1"],
        ["0", "-1,2", "1,nan", "1,inf", "1," * 17, 3],
    ),
    "workers": (
        ["a:1", "A", "a.b.", f"{'x' * 63}.b", ["10.0.0.2", "[::1]:50052"], "a,b:2", "none", ()],
        [
            "",
            "a:0",
            "a..b",
            ".a",
            "a-.b",
            "x" * 64,
            "a.b." * 64,
            "::1",
            "a:b",
            "[x]",
            "a b",
            "a:65535",
            ["none", "a"],
            3,
            None,
        ],
    ),
    "threads": ([1, 512, None, "auto"], [0, 513]),
    "batch": ([1, 512, 65536], [0, 65537]),
    "flash_attention": (["auto", "on", "off"], ["maybe", True]),
    "cache_disk": ([0, 8192, None, "auto"], [-1, 2**30 + 1, 0.5]),
    "at_once": ([1, 8], [0, 9, 1.5, None]),
    "cache_ram": ([0, 8192, None, "auto"], [-1, 2**30 + 1, 0.5]),
    "exact": (["on", "auto", "off"], ["maybe", True]),
    "cache_type": (["auto", "f16", "q8_0", "q4_1", "f32"], ["q3", 1]),
    "mmap": ([True, False], [1, "on", None]),
    "projector": (["a.gguf", None, "none"], ["", 3]),
    "draft_projector": (["a.gguf", None], ["", 3]),
    "mlock": ([True, False], [0]),
    "learn": ([True, False], [0]),
    "head": ([True, False], [0]),
    "temperature": ([0, 0.8, 1e9], [-1e-9, math.inf, math.nan, "hot", True]),
    "top_k": ([0, 40], [-1, 0.5]),
    "top_p": ([1e-9, 1], [0, 1 + 1e-9]),
    "min_p": ([0, 1], [-1e-9, 1.5]),
    "repeat_penalty": ([0.01, 2], [0, -1, 1e-300]),
    "presence_penalty": ([-2, 0, 2], [math.nan, -math.inf]),
    "frequency_penalty": ([-2, 0, 2], [math.inf]),
    "repeat_last_n": ([-1, 0, 64], [-2]),
    "logit_bias": ([{}, {1: 0.5}, {1: -math.inf}], [{-1: 0.0}, {1: math.inf}, {1: math.nan}, 3]),
    "drafter": (["auto", "suffix", "none"], ["maybe", "suffix+model", None]),
    "draft_length": (["auto", 0, LONGEST_DRAFT], [-1, LONGEST_DRAFT + 1, 2.5, None]),
    "draft_tree": (["auto", "off", 1, LONGEST_DRAFT], [0, LONGEST_DRAFT + 1, 2.5, "on", None]),
    "seed": ([0, 2**40, None, "random"], [-1, 1.0]),
    "max_tokens": ([1, None, "unlimited"], [0, 2.5]),
    "stop": (["a", ["a", "b"], ()], [3, [3], None]),
    "think": (["auto", "off", "high", 512, 0, True], ["", 0.5, None]),
    "ignore_end": ([True], ["yes"]),
    "make_room": ([False], [0]),
    "alternatives": ([0, 20], [-1, 21, "many"]),
}
"""What the options of the engine take, and what they refuse."""

OF_ENGINE = {option.key: option for option in (*LoadOptions.fields(), *GenerateOptions.fields())}
ALSO_FACTS = {
    "at_once", "batch", "cache_type", "draft", "draft_length", "draft_tree", "drafter", "key",
    "max_tokens", "origin", "pair", "projector", "statistics", "system_prompt", "target",
    "temperature", "workers",
}  # fmt: skip
"""Options whose names also name a figure or a part of something that is there."""


@cache
def defaults() -> dict[str, list[str]]:
    """Return the fields and parameters with a default, and the files that give them one.

    The fields of requests to the server have the names of other programs' APIs.
    """
    found = defaultdict[str, list[str]](list)
    for path in set(PACKAGE.rglob("*.py")) - set((PACKAGE / "server").iterdir()):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = [
                    ast.unparse(each.target)
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and each.value is not None
                ]
            elif isinstance(node, ast.FunctionDef):
                positional = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
                names = positional[len(positional) - len(node.args.defaults) :]
                keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                names += [each.arg for each, default in keywords if default is not None]
            else:
                continue
            for name in names:
                found[name].append(path.name)
    return found


@cache
def all_sources() -> str:
    """Return the package's modules, one after the other."""
    return "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))


def test_every_option_of_the_engine_has_its_range_here() -> None:
    """A new option comes with its row."""
    assert RANGES.keys() == OF_ENGINE.keys()


@table("key", RANGES)
def test_an_option_takes_the_values_in_its_range_alone(key: str) -> None:
    """The error names the option, the rule and the value."""
    option, (right, wrong) = OF_ENGINE[key], RANGES[key]
    declared: type[Options] = LoadOptions if option in LoadOptions.fields() else GenerateOptions

    for value in right:
        declared(**{key: value})
    for value in wrong:
        rule = re.escape(f"{key} must be {option.description}, not ")
        with pytest.raises(InvalidOption, match=f"^{rule}"):
            declared(**{key: value})


@table("option", SETTINGS, ids=lambda option: option.name)
def test_a_value_that_is_written_can_be_read_again(option: Option) -> None:
    """The value survives in the settings file, and as text on the command line."""
    for value in (option.default, option.checked(option.sample), *RANGES.get(option.key, [()])[0]):
        known = option.checked(value)
        written = option.write(known)
        if written is not None:
            assert option.checked(written) == known
            assert option.parsed(option.shown(known)) == known or option.is_list


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("option", SETTINGS, ids=lambda option: option.name)
def test_an_option_is_declared_once(option: Option) -> None:
    """Its help and its default occur nowhere else in the package."""
    sources = all_sources()
    found = defaults()[option.key]

    assert sources.count(f'"{option.help}"') == 1
    assert option.key in ALSO_FACTS or len(found) == 1, found
    assert len(re.findall(rf"^    {option.key}: .*= declare\(", sources, re.MULTILINE)) == 1


def test_every_option_has_flag_variable_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    """No two share one, and help, defaults and rules are found where a user looks for them."""
    with pytest.raises(SystemExit):
        parse(["chat", "--help"])
    shown = capsys.readouterr().out
    file = documented_settings()

    for names in ("flag", "variable", "name"):
        assert len({getattr(option, names) for option in SETTINGS}) == len(SETTINGS)
    assert {"SPECCHAT_CONFIG", "SPECCHAT_DEBUG"}.isdisjoint(each.variable for each in SETTINGS)
    for option in SETTINGS:
        assert re.search(rf"^  {option.flag}\b", shown, re.MULTILINE)
        assert re.search(rf"^# {option.key} = \S", file, re.MULTILINE)
        assert option.help.removesuffix(".") in file
    assert find_setting("sampling.top_k").variable == "SPECCHAT_TOP_K"


def test_a_drafter_of_the_users_is_a_choice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line, in the settings and in Python."""
    new = drafter_registry.DrafterDescriptor("mine", "one more", "nowhere:make")
    setting = find_setting("decoding.drafter")
    with pytest.raises(InvalidOption, match="mine"):
        setting.parsed("mine")
    monkeypatch.setattr(drafter_registry, "DRAFTERS", {**drafter_registry.DRAFTERS, "mine": new})

    assert "mine" in setting.words
    assert parse(["ask", "--drafter", "mine"]).drafter == "mine"
    assert GenerateOptions(drafter="mine").drafter == "mine"
    assert "mine" in setting.description


def test_the_cache_types_are_those_of_llama_cpp() -> None:
    """All but the word for leaving the choice open."""
    assert set(OF_ENGINE["cache_type"].words) == {"auto", *CACHE_TYPES}


@table("request_type", [LoadRequest, GenerateRequest, ChatRequest])
def test_the_engine_takes_the_declared_options(request_type: type[Options]) -> None:
    """By the same names and with the same defaults; nothing is declared for a request alone."""
    declared = {option.key: option for option in request_type.fields()}

    assert declared.items() <= OF_ENGINE.items()
    names = {field.name for field in dataclasses.fields(request_type)}  # type: ignore[arg-type]
    own = {"target", "draft", "process", "prompt", "special", "messages", "tools", "begun"}
    own |= {"on_progress", "pinned", "is_aside", "variables", "prediction", "is_exact", "replay"}
    own |= {
        "replay",
        "images",
        "structure",
        "tool_choice",
        "tool_names",
        "parallel_tool_calls",
        "enforces_tools",
        "part_of",
    }
    assert names - own == declared.keys()


def test_help_shows_each_option_with_its_type_and_default() -> None:
    """As the method took them one by one."""
    parameters = inspect.signature(Engine.generate).parameters

    assert list(parameters)[:3] == ["self", "prompt", "temperature"]
    assert (parameters["top_k"].annotation, parameters["top_k"].default) == (int, 40)
    for option in GenerateRequest.fields():
        assert f"{option.key}: {option.help}" in str(Engine.generate.__doc__)


def test_values_of_numpy_are_numbers_too() -> None:
    """NumPy scalars, the results of calculations, are stored as Python numbers."""
    options = GenerateOptions(top_k=np.int64(3), temperature=np.float32(0.5))  # type: ignore[arg-type]

    assert (type(options.top_k), options.temperature) == (int, 0.5)


def test_an_unknown_name_is_refused() -> None:
    """The nearest is named, if there is one."""
    with pytest.raises(InvalidOption, match=r"did you mean screen.theme"):
        find_setting("screen.them")
    with pytest.raises(InvalidOption, match=r"unknown setting qqqq$"):
        find_setting("qqqq")
    with pytest.raises(
        InvalidOption, match=r"^unknown option temprature \(did you mean temperature\?\)$"
    ):
        LocalEngine.generate(object(), "a prompt", temprature=1)  # type: ignore[arg-type, call-arg]
    with pytest.raises(InvalidOption, match=r"^unknown option contxt \(did you mean ctx\?\)$"):
        Engine.load("target.gguf", contxt=1)  # type: ignore[call-arg]


def test_truth_values_and_numbers_are_words_of_think() -> None:
    """The settings file may give them without quotes."""
    words = [OF_ENGINE["think"].checked(value) for value in (True, False, 0, 512)]
    assert words == ["on", "off", "0", "512"]

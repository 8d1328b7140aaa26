"""Numbers on the command line: huge ones are refused, negative ones are values."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from specchat.chat.store import Store, default_path
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.errors import InvalidOption
from specchat.options import declarations
from specchat.options.option import Option
from specchat.options.option_fields import Options
from tables import table

HUGE = 10**30
DECLARED = [
    option
    for each in vars(declarations).values()
    if isinstance(each, type) and issubclass(each, Options) and each is not Options
    for option in each.fields()
    if option.main_type is int
]


def numbers(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[str, ...]]:
    """Yield the words before a whole number, for each that a command and its actions take."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from numbers(inner, *words, name)
        declared = getattr(getattr(action.type, "func", None), "__self__", None)
        if action.type is int or (isinstance(declared, Option) and declared.main_type is int):
            yield (*words, *action.option_strings[:1])


WORDS = [
    each for name, parser in parse(["help"]).commands.items() for each in numbers(parser, name)
]


def test_all_numbers_are_found() -> None:
    """Options of decoding, counts, and numbers of conversations."""
    expected = {("ask", "--top-k"), ("bench", "--rounds"), ("history", "delete"), ("tune", "--ctx")}
    assert expected <= set(WORDS)
    assert len(WORDS) > 50
    assert len(DECLARED) > 10


@pytest.mark.slow(keep=29)
@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_a_huge_number_is_an_error_in_one_line(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On every option and argument of every command; no conversation has such a number."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with Store(default_path()) as store:
        store.add(store.begin().id, "user", "hi")
    code = main([*words, str(HUGE)])
    if (
        words[-1] == "--limit" and words[0] == "history"
    ):  # there is nothing wrong with a limit above all
        assert code == 0
        return

    error = capsys.readouterr().err
    assert code == (1 if words[0] == "history" else 2)
    assert error.count("\n") == 1
    assert str(HUGE) in error
    assert "internal" not in error


@table("option", DECLARED, ids=lambda option: option.name)
@table("value", [HUGE, -HUGE, str(HUGE), 2**63, f"{2**63}"], ids=str)
def test_a_huge_value_of_an_option_is_refused(option: Option, value: int | str) -> None:
    """In a file, in the environment and in Python too, and by a rule that it breaks."""
    with pytest.raises(InvalidOption, match=option.key) as raised:
        option.checked(value, is_strict=False)

    has_limit = option.maximum is not None or str(value).startswith("-")
    assert ("below 2^63" in str(raised.value)) is not has_limit


@table("text", ["-1e39", "-1E+39", "-200", "-.5e9", "-1234567.", "-inf"])
def test_a_negative_number_is_a_value(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs no = before it, however it is written."""
    assert main(["ask", "hi", "--presence-penalty", text]) == 2

    error = capsys.readouterr().err
    assert error == (
        f'specchat: --presence-penalty must be a number from -100 to 100, not "{text}"\n'
    )

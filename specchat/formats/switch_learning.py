"""Learning which template variables switch reasoning, and which values they take."""

import re
from collections.abc import Iterable, Mapping

from specchat.formats.probes import QUESTION, Probes, conversation, user
from specchat.formats.template import Variables

NAME = re.compile(r"think|reason|effort|budget", re.IGNORECASE)
"""Matches names of variables that may switch reasoning."""
NOT_SWITCHES = re.compile(r"content|text|parts|clear|keep|drop|preserve|truncate|past|history|add_")
"""Matches names of variables that hold reasoning, or that control keeping earlier reasoning."""
OFF_WORDS = frozenset({"off", "none", "no", "no_think", "disabled", "disable", "false"})
ON_WORDS = frozenset({"on", "enabled", "enable", "true", "thinking"})
USUAL_LEVELS = ("low", "medium", "high")
"""Offered if a template writes any level it is given into the prompt."""
MOST_SWITCHES, MOST_LEVELS = 8, 12
"""Limits on how many are tried, because a hostile template may have thousands."""
MADE_UP_LEVEL = "lx7"
NUMBER = 512


def switch_cases(probes: Probes) -> dict[str, Variables]:
    """Return the conversations to render: a question with each candidate switched on and off."""
    names = _names(probes)
    return {
        _case(name, value): _question_with(**{name: value})
        for name in names
        for value in (True, False)
    }


def learn_switches(probes: Probes) -> tuple[Mapping[str, Variables], str]:
    """Return the variables to set for each value of `--think`, and the variable for a number.

    Booleans are tried first, because levels may have an effect only while reasoning is on.
    """
    names = _names(probes)
    switches: dict[str, Variables] = {}
    for name in names:
        on, off = (probes[_case(name, value)] for value in (True, False))
        if (
            on
            and off
            and on != off
            and not _compared_strings(probes, name)
            and "budget" not in name
        ):
            switches = {"on": {name: True}, "off": {name: False}}
            break
    before = switches.get("on", {})
    names = [name for name in names if name not in before]
    values = [(name, value) for name in names for value in _values_to_try(probes, name)]
    probes.render({_case(*each): _question_with(**{**before, each[0]: each[1]}) for each in values})
    probes.render({"switched on": _question_with(**before)})
    number_switch = ""
    for name in names:
        for word, variables in _accepted_values(probes, name).items():
            switches.setdefault(word, {**before, **variables} if word != "off" else variables)
        if "budget" in name and str(NUMBER) in probes[_case(name, NUMBER)]:
            number_switch = name
            switches.setdefault("off", {name: 0})
    if switches or number_switch:
        switches.setdefault("on", _variables_for_on(probes, switches))
    words = sorted(switches, key=lambda word: ("on", "off", word).index(word))
    return {word: switches[word] for word in words}, number_switch


def _variables_for_on(probes: Probes, switches: Mapping[str, Variables]) -> Variables:
    """Return the variables for "on" of a template that has only levels; none if on by default."""
    off = switches.get("off", {}).items()
    is_off = any(probes.texts.get(_case(*each)) == probes["question"] for each in off)
    levels = [variables for word, variables in switches.items() if word != "off"]
    return levels[0] if is_off and levels else {}


def _names(probes: Probes) -> list[str]:
    """Return the variables that may be switches, `enable_thinking` first."""
    found = [
        name
        for name in probes.variables
        if NAME.search(name) and not NOT_SWITCHES.search(name) and name not in probes.fields
    ]
    return sorted(found, key=lambda name: (name != "enable_thinking", name))[:MOST_SWITCHES]


def _question_with(**variables: object) -> Variables:
    return conversation(user(QUESTION), generate=True, **variables)


def _case(name: str, value: object) -> str:
    return f"switch {name} {value!r}"


def _compared_strings(probes: Probes, name: str) -> list[str]:
    """Return the strings that the template compares a variable with."""
    constants: Iterable[object] = probes.variables[name]
    words = (
        constant
        for constant in constants
        if isinstance(constant, str) and re.fullmatch(r"[\w-]+", constant)
    )
    return list(dict.fromkeys(words))[:MOST_LEVELS]


def _values_to_try(probes: Probes, name: str) -> list[object]:
    """Return the values to try for a variable."""
    return [
        *dict.fromkeys([*_compared_strings(probes, name), *USUAL_LEVELS]),
        MADE_UP_LEVEL,
        NUMBER,
    ]


def _accepted_values(probes: Probes, name: str) -> dict[str, Variables]:
    """Return the values that a variable accepts; none unless one of them changes the prompt.

    A variable that is written into the prompt unchanged accepts the usual levels.
    """
    is_written = MADE_UP_LEVEL in probes[_case(name, MADE_UP_LEVEL)]
    known = _compared_strings(probes, name)
    if is_written:
        known = list(dict.fromkeys([*known, *USUAL_LEVELS]))
    texts = {word: probes[_case(name, word)] for word in known}
    if not any(text and text != probes["switched on"] for text in texts.values()):
        return {}
    found: dict[str, Variables] = {}
    for word, text in texts.items():
        if text:
            said = "off" if word in OFF_WORDS else "on" if word in ON_WORDS else word
            found.setdefault(said, {name: word})
    return found

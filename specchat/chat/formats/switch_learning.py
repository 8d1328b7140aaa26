"""Learning which variables of a template switch reasoning, and to what."""

import re
from collections.abc import Mapping

from specchat.chat.formats.probes import QUESTION, Probes, conversation, user
from specchat.chat.template import Variables

NAME = re.compile(r"think|reason|effort|budget", re.IGNORECASE)
"""How variables that switch reasoning are called."""
NOT_SWITCHES = re.compile(r"content|text|parts|clear|keep|drop|preserve|truncate|past|history|add_")
"""Parts of the names of variables that hold reasoning, or decide about that of earlier answers."""
OFF_WORDS = frozenset({"off", "none", "no", "no_think", "disabled", "disable", "false", "chat"})
ON_WORDS = frozenset({"on", "enabled", "enable", "true", "thinking", "auto"})
LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Levels that are tried where a template writes whatever it is given into the prompt."""


def switch_cases(probes: Probes) -> dict[str, Variables]:
    """Return what to render: a question with each value of each variable that may be a switch."""
    asked = user(QUESTION)
    cases = {}
    for name, constants in probes.variables.items():
        if NAME.search(name) and not NOT_SWITCHES.search(name):
            texts = [each for each in constants if isinstance(each, str) and each]
            for value in dict.fromkeys([True, False, *texts, *LEVELS, 0, 512]):
                key = f"switch {name} {value!r}"
                cases[key] = conversation(asked, generate=True, **{name: value})
    return cases


def learn_switches(probes: Probes) -> tuple[Mapping[str, Variables], str]:
    """Return the variables to set by the words of `--think`, and the one that takes a number."""
    found: dict[str, Variables] = {}
    number_switch = ""
    names = [name for name in probes.variables if f"switch {name} True" in probes.texts]
    for name in sorted(names, key=lambda name: (name != "enable_thinking", name)):
        on, off = (probes[f"switch {name} {value!r}"] for value in (True, False))
        is_boolean = bool(on and off) and on != off and not _is_written(probes, name)
        texts = [each for each in probes.variables[name] if isinstance(each, str) and each]
        if is_boolean and "on" not in found and not texts:
            found |= {"on": {name: True}, "off": {name: False}}
        elif words := _words(probes, name):
            before = found.get("on", {}) if "off" in found else {}
            found |= {word: {**before, **each} for word, each in words.items() if word not in found}
        if _takes_number(probes, name):
            number_switch = name
            found.setdefault("off", {name: 0})
    return found, number_switch


def _words(probes: Probes, name: str) -> dict[str, Variables]:
    """Return the words that a variable knows: values that change the prompt."""
    default = probes["question"]
    known = [each for each in probes.variables[name] if isinstance(each, str) and each]
    if not known and _is_written(probes, name):
        known = ["low", "medium", "high"]
    texts = {word: probes[f"switch {name} {word!r}"] for word in dict.fromkeys(known)}
    if not any(text and text != default for text in texts.values()):
        return {}
    found: dict[str, Variables] = {}
    for word, text in texts.items():
        if text and re.fullmatch(r"[\w-]+", word):
            said = "off" if word in OFF_WORDS else "on" if word in ON_WORDS else word
            found.setdefault(said, {name: word})
    return found


def _is_written(probes: Probes, name: str) -> bool:
    """Whether the template writes the variable's value into the prompt, whatever it is."""
    return all(
        word in probes[f"switch {name} {word!r}"].replace(QUESTION, "")
        and word not in probes["question"].replace(QUESTION, "").split()
        or word in probes[f"switch {name} {word!r}"]
        and probes[f"switch {name} {word!r}"] != probes[f"switch {name} 'max'"]
        for word in ("minimal", "low", "xhigh")
    )


def _takes_number(probes: Probes, name: str) -> bool:
    """Whether the variable is a number of tokens, as in Seed-OSS's thinking budget."""
    text = probes[f"switch {name} 512"]
    return "512" in text and text != probes["question"] and "budget" in name

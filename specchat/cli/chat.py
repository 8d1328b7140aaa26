"""`specchat` alone: open the chat."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Collection
from typing import Any

from specchat.catalogue.entries import Entry, load_entries
from specchat.catalogue.pairs import DEMO, Pair, load_pairs
from specchat.catalogue.presence import bytes_here, bytes_of_pair, size_of_pair
from specchat.chat.store import default_path
from specchat.cli.loading import (
    chosen_drafter,
    chosen_pair,
    is_demo,
    loading_options,
)
from specchat.engine import GenerateOptions
from specchat.engine.api import Engine
from specchat.errors import InvalidOption
from specchat.settings import Settings, read_settings, wrong_setting

__all__ = ["run"]

SAMPLING = (
    "draft_length",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
)


def run(arguments: argparse.Namespace) -> int:
    """Show the chat until the user leaves it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOption("the chat needs a terminal: specchat ask answers without one")
    pair = chosen_pair(arguments)
    choice = _choice(arguments, pair)
    GenerateOptions.of(choice.options)
    settings = read_settings()
    is_kept = settings["chat.history"] and not arguments.no_history
    _require_actions(settings, _tui("app").ACTIONS)
    setup = _tui("setup").Setup(
        pair=choice,
        offers=lambda: _offers(arguments),
        history=default_path() if is_kept else None,
        system_prompt=arguments.system_prompt or "",
        theme=settings["screen.theme"],
        shows_panel=settings["screen.statistics"],
        shows_conversations=settings["screen.conversations"],
        shows_origins=settings["screen.colour_tokens"],
        folds_reasoning=settings["screen.fold_reasoning"],
        has_animations=settings["screen.animations"],
        is_first_run=settings["screen.offer_models"] and _is_first_run(arguments),
        keys=settings.key_bindings,
    )
    _tui("app").ChatApp(setup).run()
    return 0


def _require_actions(settings: Settings, known: Collection[str]) -> None:
    """Raise SettingsError where a key is set for an action that the chat does not have."""
    for name in settings.key_bindings:
        if name not in known:
            what = f"the chat has no action {name}: known are {', '.join(sorted(known))}"
            raise wrong_setting(settings, f"keys.{name}", what)


def _is_first_run(arguments: argparse.Namespace) -> bool:
    """Say whether the demo pair answers because there is no other."""
    return is_demo(arguments) and set(load_pairs()) == {DEMO}


def _offers(arguments: argparse.Namespace) -> list[Any]:
    """Return what the model screen shows: the pairs that are here, and those that can be pulled."""
    here = load_pairs()
    return [_offer(arguments, each, here.get(each.name)) for each in load_entries().values()]


def _offer(arguments: argparse.Namespace, entry: Entry, pair: Pair | None) -> Any:
    num_bytes = bytes_of_pair(entry)
    begun = sum(map(bytes_here, entry.files))
    return _tui("setup").Offer(
        name=entry.name,
        description=entry.description,
        size=size_of_pair(num_bytes, entry.about_gb),
        tier=entry.tier,
        licence=entry.licence,
        needs=entry.experimental,
        share=begun / num_bytes if num_bytes else 0.0,
        references=entry.references,
        choice=_choice(arguments, pair) if pair else None,
    )


def _tui(name: str) -> Any:
    """Return a module of the chat, which is not a neighbour's to import when it is not wanted."""
    return importlib.import_module(f"specchat.tui.{name}")


def _choice(arguments: argparse.Namespace, pair: Pair) -> Any:
    """Return a pair as the chat takes it."""
    given = {name: getattr(arguments, name) for name in SAMPLING}
    drafter = chosen_drafter(arguments, pair)
    options = {
        **pair.sampling,
        **{name: value for name, value in given.items() if value is not None},
        "drafter": drafter,
    }
    draft = pair.draft if drafter in {"auto", "model"} else None
    loading = Engine.loading(pair.target, draft, **loading_options(arguments))
    name = pair.name if pair.name != DEMO else "demo pair"
    return _tui("setup").PairChoice(name, pair.description, loading, options)

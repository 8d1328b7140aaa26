"""`specchat` alone: open the chat."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from specchat.catalogue.pairs import Pair
from specchat.chat.store import default_path
from specchat.cli.model_arguments import (
    chosen_pair,
    generate_options,
    loading_options,
    save_loaded,
)
from specchat.cli.pair_offers import find_offers, is_first_run, left_out
from specchat.drafters import may_use_model
from specchat.engine.api import Loading
from specchat.errors import ChatFailed, InvalidOption
from specchat.settings import Settings, wrong_setting

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Show the chat until the user leaves it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOption("the chat needs a terminal: specchat ask answers without one")
    pair = chosen_pair(arguments)
    choice = replace(
        _choice(arguments, pair), keep=lambda facts: save_loaded(arguments, pair, facts)
    )
    settings = arguments.settings
    _require_actions(settings, _tui("app").ACTIONS)
    setup = _tui("setup").Setup(
        pair=choice,
        offers=lambda: find_offers(_tui("setup").Offer, lambda pair: _choice(arguments, pair)),
        history=default_path() if arguments.history else None,
        system_prompt=arguments.system_prompt or "",
        theme=settings["screen.theme"],
        shows_panel=settings["screen.statistics"],
        shows_conversations=settings["screen.conversations"],
        shows_origins=settings["screen.colour_tokens"],
        folds_reasoning=settings["screen.fold_reasoning"],
        has_animations=settings["screen.animations"],
        is_first_run=settings["screen.offer_models"] and is_first_run(arguments),
        keys=settings.key_bindings,
        notice=left_out(),
    )
    app = _tui("app").ChatApp(setup)
    errors = sys.stderr
    app.run()
    sys.stderr = errors  # starting an engine changes it for a moment, perhaps this one
    if app.failure:
        raise ChatFailed(app.failure)
    return 0


def _require_actions(settings: Settings, known: Collection[str]) -> None:
    """Raise SettingsError where a key is set for an action that the chat does not have."""
    for name in settings.key_bindings:
        if name not in known:
            what = f"the chat has no action {name}: known are {', '.join(sorted(known))}"
            raise wrong_setting(settings, f"keys.{name}", what)


def _tui(name: str) -> Any:
    """Return a module of the chat, which is not a neighbour's to import when it is not wanted."""
    return importlib.import_module(f"specchat.tui.{name}")


def _choice(arguments: argparse.Namespace, pair: Pair) -> Any:
    """Return a pair as the chat takes it."""
    options = generate_options(arguments, pair)
    draft = pair.draft if may_use_model(options["drafter"]) else None
    loading = Loading(pair.target, draft, **loading_options(arguments, pair))
    return _tui("setup").PairChoice(pair.name, pair.description, loading, options)

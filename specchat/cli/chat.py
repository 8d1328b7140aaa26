"""`specchat` alone: open the chat."""

import argparse
import sys
from dataclasses import replace

from specchat.catalogue.pairs import Pair
from specchat.chat.store import default_path
from specchat.cli.model_arguments import (
    chosen_pair,
    generate_options,
    loading_options,
    save_loaded,
)
from specchat.cli.pair_offers import find_offers, is_first_run, left_out
from specchat.drafter_registry import may_use_model
from specchat.engine.api import Loading
from specchat.engine.offers import PairChoice
from specchat.errors import ChatFailed, InvalidOption
from specchat.options import ScreenOptions
from specchat.settings import Settings, wrong_setting
from specchat.tui.commands import KEY_ACTIONS
from specchat.tui.setup import Setup


def run(arguments: argparse.Namespace) -> None:
    """Show the chat until the user leaves it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOption("the chat needs a terminal; use `specchat ask` without one")
    pair = chosen_pair(arguments)
    choice = replace(
        _choice(arguments, pair), keep=lambda facts: save_loaded(arguments, pair, facts)
    )
    settings = arguments.settings
    _require_actions(settings)
    screen = ScreenOptions(**settings.values(ScreenOptions))
    setup = Setup(
        pair=choice,
        offers=lambda: find_offers(lambda pair: _choice(arguments, pair)),
        history=default_path() if arguments.history else None,
        system_prompt=arguments.system_prompt or "",
        screen=screen,
        is_first_run=screen.offer_models and is_first_run(arguments),
        keys=settings.key_bindings,
        notice=left_out(),
    )
    from specchat.tui.app import ChatApp

    app = ChatApp(setup)
    errors = sys.stderr
    app.run()
    sys.stderr = errors  # starting an engine changes it for a moment, perhaps this one
    if app.failure:
        raise ChatFailed(app.failure)


def _require_actions(settings: Settings) -> None:
    """Raise SettingsError if a key is set for an action that the chat does not have."""
    for name in settings.key_bindings:
        if name not in KEY_ACTIONS:
            known = ", ".join(sorted(KEY_ACTIONS))
            raise wrong_setting(settings, f"keys.{name}", f"unknown action {name}: use {known}")


def _choice(arguments: argparse.Namespace, pair: Pair) -> PairChoice:
    """Return a pair with its loading and generation options."""
    options = generate_options(arguments, pair)
    draft = pair.draft if may_use_model(options["drafter"]) else None
    loading = Loading(pair.target, draft, **loading_options(arguments, pair))
    return PairChoice(pair.name, pair.description, loading, options)

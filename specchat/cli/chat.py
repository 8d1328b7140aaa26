"""`specchat` alone: open the chat."""

import argparse
import gc
import os
import sys
from dataclasses import replace
from types import ModuleType

from specchat.catalogue.catalogue_file import DEMO, own_catalogue_path, read_catalogue
from specchat.catalogue.recent_pairs import recent_pairs, remember_pair
from specchat.chat.store import default_path
from specchat.cli.model_arguments import (
    chosen_answerer,
    is_first_run,
    names_nothing,
    save_loaded,
)
from specchat.cli.pair_choices import choice_of, choice_of_recent, choice_of_server
from specchat.errors import InvalidOption, SpecchatError
from specchat.options.declarations import ChatOptions, ScreenOptions, ServerOptions
from specchat.settings.sources import Settings, wrong_setting
from specchat.tui.commands import KEY_ACTIONS
from specchat.tui.setup import PairChoice, Setup


def run(arguments: argparse.Namespace) -> int | None:
    """Show the chat until the user leaves it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOption("the chat needs a terminal; use `specchat ask` without one")
    if sys.platform != "win32" and (kind := os.environ.get("TERM", "")) in {"", "dumb", "unknown"}:
        named = f"TERM={kind}" if kind else "TERM is not set"
        raise InvalidOption(
            f"the chat needs a terminal that draws a screen ({named}): set TERM, such as"
            " xterm-256color, or use `specchat ask`"
        )
    choice = _first_choice(arguments)
    settings = arguments.settings
    _require_known_actions(settings)
    setup = Setup(
        pair=choice,
        offers=lambda: _offers().find_offers(arguments),
        foresee=lambda offer, held_bytes: _offers().foresee_offer(offer, held_bytes),
        remember=lambda name, loading: remember_pair(name, loading.target, loading.draft),
        open_file=lambda name: _offers().open_file(arguments, name),
        history=default_path() if arguments.history else None,
        system_prompt=arguments.system_prompt or "",
        chat=ChatOptions(**settings.values(ChatOptions)),
        screen=ScreenOptions(**settings.values(ScreenOptions)),
        server=ServerOptions(**settings.values(ServerOptions)),
        is_first_run=choice.name == DEMO and is_first_run(arguments),
        keys=settings.key_bindings,
        other_drafts=lambda choice: _offers().find_other_drafts(choice),
        notice=left_out(),
    )
    gc.disable()  # until the first screen is shown: collections take an eighth of the startup time
    from specchat.tui.app import ChatApp

    app = ChatApp(setup)
    errors = sys.stderr
    app.run()
    sys.stderr = errors  # an engine start replaces it for a moment, perhaps right now
    if app.failure:
        raise SpecchatError(app.failure)
    return app.return_code


def _offers() -> ModuleType:
    """Return the module that finds what the models screen lists; the first frame needs none."""
    from specchat.cli import offers

    return offers


def _first_choice(arguments: argparse.Namespace) -> PairChoice:
    """Return what answers first: what the arguments name, or else the pair used last."""
    if names_nothing(arguments):
        for recent in recent_pairs():
            if recent.name == DEMO:
                break
            if choice := choice_of_recent(arguments, recent):
                return choice
    answerer = chosen_answerer(arguments)
    pair = answerer.pair
    if pair is None:
        return choice_of_server(answerer)
    return replace(
        choice_of(arguments, pair), keep=lambda facts: save_loaded(arguments, pair, facts)
    )


def _require_known_actions(settings: Settings) -> None:
    """Raise SettingsError if the settings assign a key to an unknown action."""
    for name in settings.key_bindings:
        if name not in KEY_ACTIONS:
            actions = ", ".join(sorted(KEY_ACTIONS))
            raise wrong_setting(settings, f"keys.{name}", f"unknown action {name}: use {actions}")


def left_out() -> str:
    """Return a notice about invalid pairs in the user's models.toml, empty if there are none."""
    complaint = read_catalogue().complaint if os.path.exists(own_catalogue_path()) else ""
    return complaint and f"Some pairs are not listed: {complaint}"

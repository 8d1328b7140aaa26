"""`specchat` alone: open the chat."""

import argparse
import gc
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from specchat.catalogue.catalogue_file import DEMO, own_catalogue_path, read_catalogue
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.header_cache import HeaderCache
from specchat.catalogue.known_heads import missing_head
from specchat.catalogue.recent_pairs import recent_pairs, remember_pair
from specchat.chat.store import default_path
from specchat.cli.model_arguments import (
    chosen_answerer,
    is_first_run,
    names_nothing,
    save_loaded,
)
from specchat.cli.offers import (
    choice_of,
    choice_of_recent,
    choice_of_server,
    find_offers,
    foresee_offer,
    open_file,
)
from specchat.drafter_registry import AUTO
from specchat.errors import InvalidOption, SpecchatError
from specchat.hub.cache import find_present
from specchat.hub.client import is_offline
from specchat.hub.references import Reference
from specchat.options.declarations import ChatOptions, ScreenOptions, ServerOptions
from specchat.settings.sources import Settings, wrong_setting
from specchat.tui.commands import KEY_ACTIONS
from specchat.tui.setup import Offer, PairChoice, Setup
from specchat.wording import size_text


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
        offers=lambda: find_offers(arguments),
        foresee=foresee_offer,
        remember=lambda name, loading: remember_pair(name, loading.target, loading.draft),
        open_file=partial(open_file, arguments),
        history=default_path() if arguments.history else None,
        system_prompt=arguments.system_prompt or "",
        chat=ChatOptions(**settings.values(ChatOptions)),
        screen=ScreenOptions(**settings.values(ScreenOptions)),
        server=ServerOptions(**settings.values(ServerOptions)),
        is_first_run=choice.name == DEMO and is_first_run(arguments),
        keys=settings.key_bindings,
        other_drafts=find_other_drafts,
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
    complaint = read_catalogue().complaint if own_catalogue_path().exists() else ""
    return complaint and f"Some pairs are not listed: {complaint}"


def find_other_drafts(choice: PairChoice) -> list[Offer]:
    """Return other drafts for a pair's target: installed ones, then the catalogue's.

    There are none if the catalogue advises against draft models for this target.
    """
    if choice.server is not None:
        return []
    loading, drafts = choice.loading, find_drafts(choice.loading.target)
    if drafts.advice:
        return []
    installed = [
        Offer(
            f"{choice.name} + {draft.model.name.rpartition('/')[2]}",
            f"draft with {draft.model.name} ({draft.why})",
            choose=partial(_with_draft, choice, draft.model.path),
        )
        for draft in drafts.fitting
        if draft.model.path != loading.draft
    ]
    missing = [
        Offer(
            entry.name,
            f"download {entry.draft.name}, the draft model of {entry.name}",
            share=entry.bytes_here / (entry.num_bytes or 1),
            references=entry.references,
        )
        for entry in read_catalogue().entries.values()
        if isinstance(entry.draft, Reference) and not is_offline()
        and isinstance(entry.target, Reference) and find_present(entry.target) == loading.target
        and find_present(entry.draft) is None
    ]  # fmt: skip
    with HeaderCache() as cache:
        head = None if is_offline() else missing_head(loading.target, cache)
    if head:
        name, what = head.reference.name, f"download its prediction head, {head.title}"
        size = size_text(head.num_bytes) if head.num_bytes else "?"
        pulled = Offer(f"{choice.name} + {name}", what, size=size, references=(head.reference,))
        missing.insert(0, replace(pulled, licence=head.licence))
    return installed + missing


def _with_draft(choice: PairChoice, draft: Path) -> PairChoice:
    loading = replace(choice.loading, draft=draft)
    name, options = f"{choice.name} + {draft.stem}", {**choice.options, "drafter": AUTO}
    return replace(choice, name=name, source=loading, options=options, keep=None)

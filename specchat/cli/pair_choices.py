"""How to load what the chat opens: a pair, a file, what was loaded before, or a server's model."""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from specchat.catalogue.pair_drafts import with_best_draft, with_derived_draft, with_tuned_draft
from specchat.catalogue.pairs import Pair, load_pairs
from specchat.catalogue.recent_pairs import RecentPair
from specchat.cli.model_arguments import Answerer, generate_options, loading_of
from specchat.errors import SpecchatError
from specchat.tui.setup import PairChoice

CHAT_DISK_MIB = 4096
"""Disk space for conversations that the chat continues without reading them again."""


def choice_of(arguments: argparse.Namespace, pair: Pair) -> PairChoice:
    """Return how to load a pair, with the options of its answers."""
    options = generate_options(arguments, pair)
    loading = loading_of(arguments, pair, options["drafter"])
    if loading.cache_disk is None and arguments.history:
        loading = replace(loading, cache_disk=CHAT_DISK_MIB)
    return PairChoice(pair.name, pair.description, loading, options, title=pair.title)


def choice_of_recent(arguments: argparse.Namespace, recent: RecentPair) -> PairChoice | None:
    """Return how to load a pair that was loaded before; None if its files are gone or damaged."""
    target = Path(recent.target)
    if not os.path.isfile(target):
        return None
    here = load_pairs()
    try:
        if recent.name in here:
            return choose_tuned(arguments, here[recent.name])
        return choose_reopened(arguments, recent)
    except SpecchatError:
        return None


def choice_of_server(answerer: Answerer) -> PairChoice:
    """Return how to connect to a server, with the options of its answers."""
    server = answerer.server
    assert server is not None  # noqa: S101  # the caller has looked
    return PairChoice(answerer.name, f"runs on {server.shown}", server, answerer.options)


def choose_reopened(arguments: argparse.Namespace, recent: RecentPair) -> PairChoice:
    """Return a file that was opened before, with the draft model it had, or the best one here."""
    target, draft = Path(recent.target), Path(recent.draft or "")
    if recent.draft and os.path.isfile(draft):
        return choice_of(arguments, Pair(recent.name, "", target, draft, {}))
    return choose_file(arguments, recent.name, target)


def choose_file(arguments: argparse.Namespace, name: str, path: Path) -> PairChoice:
    """Return how to load a file with the best draft model here."""
    return choose_tuned(arguments, with_best_draft(Pair(name, "", path, None, {})))


def choose_tuned(arguments: argparse.Namespace, pair: Pair) -> PairChoice:
    """Return how to load a pair with the draft model that was tuned or derived for its target."""
    return choice_of(arguments, with_derived_draft(with_tuned_draft(pair)))

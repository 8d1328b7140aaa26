"""`specchat pull`: download a pair of the catalogue, or a file of the hub."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from specchat.catalogue.catalogue_file import File, find_entry, known
from specchat.catalogue.pairs import require_files
from specchat.cli.download_progress import Transfers
from specchat.cli.pull_check import check_files
from specchat.cli.recommendation import agreed_pair
from specchat.cli.terminal import say
from specchat.errors import DownloadFailed, InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.download import download
from specchat.hub.pins import pins_path, set_aside_damaged_pins
from specchat.hub.references import Reference, looks_like_reference, parse

__all__ = ["run"]

FAILED = 1


def run(arguments: argparse.Namespace) -> int:
    """Fetch what is not here, and print where the files lie, the target first.

    Without a name, offer the pair that suits this machine; with --check, hash what is here.
    """
    if arguments.name is None:
        if arguments.draft:
            raise InvalidOption("--draft goes with the name of a file")
        if arguments.check:
            raise InvalidOption("--check goes with a name: `specchat list` says what is here")
        entry = agreed_pair()
        if entry is None:
            say("nothing was fetched: `specchat list` names all pairs")
            return FAILED
        arguments.name = entry.name
    _report_damaged_pins()
    is_pair = not looks_like_reference(arguments.name)
    files = _of_pair(arguments) if is_pair else _of_hub(arguments)
    references = [file for file in files if isinstance(file, Reference)]
    if arguments.check:
        return check_files(references, _words(arguments))
    if all(find_present(reference) for reference in references):
        say(f"{arguments.name} is here already")
    places = dict(zip(references, _fetch(references, arguments), strict=True))
    paths = [places[file] if isinstance(file, Reference) else file for file in files]
    print("\n".join(map(str, paths)))
    words = ["--pair", arguments.name] if is_pair else _options(paths)
    say(f"ready: specchat ask {shlex.join(words)}")
    return 0


def _report_damaged_pins() -> None:
    """Set an unreadable file of checksums aside and say so; without it nothing is overwritten."""
    try:
        aside = set_aside_damaged_pins()
    except OSError as error:
        raise DownloadFailed(f"{pins_path()} cannot be read: {error.strerror}") from None
    if aside:
        say(f"{pins_path()} is damaged: kept as {aside.name}; checksums are taken from the hub")


def _of_pair(arguments: argparse.Namespace) -> Sequence[File]:
    """Return the files of a pair; those of an experimental one would be of no use."""
    if arguments.draft:
        raise InvalidOption(
            f"{arguments.name} is a pair, whose draft is settled: --draft goes with a file,"
            " org/repo/file.gguf"
        )
    entry = find_entry(arguments.name)
    if entry.experimental:
        raise ModelNotFound(
            f"{entry.name} is experimental: it needs {entry.experimental}, which specchat cannot do"
            " yet, so it is not fetched"
        )
    require_files(entry)
    return entry.files


def _of_hub(arguments: argparse.Namespace) -> Sequence[File]:
    return [known(parse(text)) for text in (arguments.name, arguments.draft) if text]


def _fetch(references: Sequence[Reference], arguments: argparse.Namespace) -> list[Path]:
    """Download with a line that says how far it is; Ctrl+C keeps what is here."""
    transfers = Transfers()
    try:
        return download(references, transfers.tell)
    except KeyboardInterrupt:
        transfers.wipe()
        say(f"stopped: `specchat pull {shlex.join(_words(arguments))}` goes on from here")
        raise
    finally:
        transfers.wipe()


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the words that name what is to be pulled."""
    return [arguments.name, *(["--draft", arguments.draft] if arguments.draft else [])]


def _options(paths: Sequence[Path]) -> list[str]:
    """Return the words that name files which belong to no pair."""
    names = ("--target", "--draft")
    return [word for name, path in zip(names, paths, strict=False) for word in (name, str(path))]

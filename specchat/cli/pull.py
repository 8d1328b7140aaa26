"""`specchat pull`: download a pair of the catalogue, or a file of the hub."""

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from specchat.catalogue.catalogue_file import find_entry, known
from specchat.catalogue.entry import File
from specchat.catalogue.pairs import require_files
from specchat.cli.download_progress import ProgressLine
from specchat.cli.pull_check import check_files
from specchat.cli.recommendation import agreed_pair
from specchat.cli.terminal import say
from specchat.errors import DownloadFailed, InvalidOption, ModelNotFound
from specchat.hub.cache import find_present
from specchat.hub.download import download
from specchat.hub.pins import pins_path, set_aside_damaged_pins
from specchat.hub.references import Reference, looks_like_reference, parse

FAILED = 1


def run(arguments: argparse.Namespace) -> int:
    """Fetch the missing files and print the paths of all of them, the target first.

    Without a name, offer the pair that suits this machine; with --check, check what is installed.
    """
    if arguments.name is None:
        arguments.name = _recommended_name(arguments)
        if arguments.name is None:
            say("nothing was fetched: `specchat list` shows all pairs")
            return FAILED
    _report_damaged_pins()
    is_pair = not looks_like_reference(arguments.name)
    files = _of_pair(arguments) if is_pair else _of_hub(arguments)
    references = [file for file in files if isinstance(file, Reference)]
    if arguments.check:
        return check_files(references, _words(arguments))
    if all(find_present(reference) for reference in references):
        say(f"{arguments.name} is already installed")
    places = dict(zip(references, _fetch(references, arguments), strict=True))
    paths = [places[file] if isinstance(file, Reference) else file for file in files]
    print("\n".join(map(str, paths)))
    words = ["--pair", arguments.name] if is_pair else _options(paths)
    say(f"ready: specchat ask {shlex.join(words)}")
    return 0


def _recommended_name(arguments: argparse.Namespace) -> str | None:
    """Return the name of the recommended pair, None if the user declines it."""
    if arguments.draft:
        raise InvalidOption(
            "--draft requires a target: specchat pull org/repo/target.gguf --draft FILE"
        )
    if arguments.check:
        raise InvalidOption("--check requires a name: see `specchat list` for what is installed")
    entry = agreed_pair()
    return entry.name if entry else None


def _report_damaged_pins() -> None:
    """Set an unreadable file of pins aside, so that no pull overwrites it, and report it."""
    try:
        aside = set_aside_damaged_pins()
    except OSError as error:
        raise DownloadFailed(f"{pins_path()} cannot be read: {error.strerror}") from None
    if aside:
        say(f"{pins_path()} is damaged: kept as {aside.name}; checksums are taken from the hub")


def _of_pair(arguments: argparse.Namespace) -> Sequence[File]:
    """Return the files of a pair; experimental ones cannot be used and are not fetched."""
    if arguments.draft:
        raise InvalidOption(
            f"{arguments.name} is a pair and has a draft: --draft goes with a target's file,"
            " org/repo/file.gguf"
        )
    entry = find_entry(arguments.name)
    if entry.experimental:
        raise ModelNotFound(
            f"{entry.name} is experimental: it needs {entry.experimental}, which specchat does not"
            " support yet, so it is not fetched"
        )
    require_files(entry)
    return entry.files


def _of_hub(arguments: argparse.Namespace) -> Sequence[File]:
    return [known(parse(text)) for text in (arguments.name, arguments.draft) if text]


def _fetch(references: Sequence[Reference], arguments: argparse.Namespace) -> list[Path]:
    """Download files and show the progress; Ctrl+C keeps what arrived."""
    try:
        with ProgressLine() as line:
            return download(references, line.update)
    except KeyboardInterrupt:
        say(f"stopped: `specchat pull {shlex.join(_words(arguments))}` resumes the download")
        raise


def _words(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments that name what is pulled."""
    return [arguments.name, *(["--draft", arguments.draft] if arguments.draft else [])]


def _options(paths: Sequence[Path]) -> list[str]:
    """Return the options that load files which belong to no pair."""
    names = ("--target", "--draft")
    return [word for name, path in zip(names, paths, strict=False) for word in (name, str(path))]

"""`specchat pull`: download a pair of the catalogue, or a file of the hub."""

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.draft_choice import find_drafts, find_target
from specchat.catalogue.draft_offers import offer_draft
from specchat.catalogue.entry import Entry, File
from specchat.catalogue.fit import judge, need_of, predicted_rate, recommend, size_of
from specchat.catalogue.head_offers import offer_head
from specchat.catalogue.header_cache import HeaderCache, HeaderFacts
from specchat.catalogue.pairs import file_of, find_usable
from specchat.catalogue.projectors import missing_projector
from specchat.cli.pass_measuring import measure_pulled
from specchat.cli.pull_names import (
    NothingPulled,
    local_path,
    model_here,
    reference_of,
    register,
)
from specchat.cli.terminal import DONE, FAILED, confirm, print_exactly, say, show_line
from specchat.errors import DownloadFailed, InvalidOption, ModelNotFound, SpecchatError
from specchat.hub.cache import find_present
from specchat.hub.download import check, download
from specchat.hub.names import is_hub_name, looks_like_name
from specchat.hub.offline import is_offline
from specchat.hub.pins import pins_path, set_aside_damaged_pins
from specchat.hub.references import Reference
from specchat.hub.tally import Tally
from specchat.hub.transfer import DownloadCallback, DownloadProgress
from specchat.llama.child_process import ask_for_build
from specchat.options.declarations import NO_DRAFT, LoadOptions
from specchat.planning.device import Machine, find_machine, gpus_of, keep_gpus
from specchat.safe_text import in_one_line
from specchat.wording import rate_text, size_text

TERMINAL_SECONDS, PLAIN_SECONDS = 0.1, 5.0
"""Seconds between two progress lines, on a terminal and elsewhere."""
MOST_SHOWN = 4
"""The most other heads to name."""


def run(arguments: argparse.Namespace) -> int:
    """Download the missing files and print the paths of all files, the target first.

    Without a name, offer the best pair for this machine; with --check, verify installed files. A
    file or folder of this machine is saved as a pair instead.
    """
    if arguments.name is None:
        entry = _recommended_pair(arguments)
        size = f" ({size_text(size_of(entry))})" if size_of(entry) else ""
        question, otherwise = f"pull {entry.name}{size}?", f"`specchat pull {entry.name}` pulls it"
        if None in entry.paths and not confirm(question, otherwise=otherwise, default=True):
            say("nothing was fetched: `specchat list` shows all pairs")
            return FAILED
        arguments.name = entry.name
    if path := local_path(arguments.name):
        _require_alone(arguments, "a file of this machine")
        register(path)
        return DONE
    model = model_here(arguments.name)
    if model and model.tool == "hub":
        arguments.name = model.name
    elif model:
        is_derived = model.tool == "derived"
        _require_alone(arguments, "a derived file" if is_derived else f"a model of {model.tool}")
        origin = "derived on this machine" if is_derived else f"from {model.tool}"
        say(f"{model.name} is already here, {origin}")
        print_exactly(str(model.path))
        say(f"ready: specchat ask --target {shlex.quote(arguments.name)}")
        return DONE
    _report_damaged_pins()
    try:
        return _pull(arguments)
    except NothingPulled:
        return FAILED


def _pull(arguments: argparse.Namespace) -> int:
    """Download a pair, or files of the hub."""
    is_alone = arguments.draft == NO_DRAFT.as_posix()
    names = [arguments.name]
    names += [arguments.draft] if arguments.draft and not is_alone else []
    asked = [*names, *([arguments.draft] if is_alone else [])]
    command = f"`specchat pull {' --draft '.join(map(shlex.quote, asked))}`"
    is_pair = not looks_like_name(arguments.name)
    machine = find_machine()
    files = _files_of_pair(arguments) if is_pair else _files_of_hub(arguments, names, machine)
    references = [file for file in files if isinstance(file, Reference)]
    if arguments.check:
        return _check(references, arguments.name, command)
    _delete_wrong_files(references)
    is_installed = all(find_present(reference) for reference in references)
    if is_installed:
        say(f"{arguments.name} is already installed")
    pulled = dict(zip(references, _fetch(references, command), strict=True))
    paths = [pulled[file] if isinstance(file, Reference) else file for file in files]
    print_exactly("\n".join(map(str, paths)))
    sys.stdout.flush()  # what follows may be interrupted
    named = [arguments.name] if is_pair else list(map(_short_name, files, paths))
    alone = _facts(paths[0]) if not is_pair and len(references) == 1 else None
    if alone and alone.kind == "projector":
        say("it makes images readable for the model of its repository, which finds it")
        return DONE
    if alone and alone.is_head:
        target = find_target(paths[0])
        if target is None:
            say(f"it is a prediction head; pull its target, too: it drafts with --draft {named[0]}")
            return DONE
        named = [target.name, *named]
    elif alone and not is_installed and not is_alone:
        options = LoadOptions(**arguments.settings.values(LoadOptions))
        draft = _draft_for(paths[0], references[0], machine, options)
        named += [_short_name(*draft)] if draft else []
    if isinstance(files[0], Reference) and not (is_installed or is_alone):
        _offer_projector(files[0])
    flags = ["--pair"] if is_pair else ["--target", "--draft"]
    words = [word for option in zip(flags, named, strict=False) for word in option]
    measure_pulled(words, is_needed=not is_installed)
    say(f"ready: specchat ask {shlex.join(words)}")
    return DONE


def _files_of_hub(
    arguments: argparse.Namespace, names: Sequence[str], machine: Machine
) -> Sequence[File]:
    """Return the files that the names stand for; the draft's name is looked at first."""
    if len(names) > 1 and not is_hub_name(arguments.draft):
        raise InvalidOption(
            f"--draft {arguments.draft} does not name a file of the hub: write org/repo/file.gguf"
            " or org/repo:Q8_0"
        )
    return [reference_of(name, machine, is_here=arguments.check) for name in names]


def _short_name(file: File, path: Path) -> str:
    """Return the file's name if that is enough to find it, else its path."""
    with suppress(ModelNotFound):
        return str(file) if file_of(str(file)) == path else str(path)
    return str(path)


def _require_alone(arguments: argparse.Namespace, what: str) -> None:
    """Raise InvalidOption for an option that only files of the hub can have."""
    for option in ("--check", "--draft"):
        if getattr(arguments, option.removeprefix("--")):
            raise InvalidOption(f"{arguments.name} is {what}: {option} goes with files of the hub")


def _facts(path: Path) -> HeaderFacts:
    with HeaderCache() as cache:
        return cache.of(path)


def _offer_projector(target: Reference) -> None:
    """Offer the projector in a pulled target's repository, unless one is here."""
    if not (found := missing_projector(target)):
        return
    reference, num_bytes = found
    size = f" ({size_text(num_bytes)})" if num_bytes else ""
    command = f"`specchat pull {shlex.quote(str(reference))}`"
    if not (sys.stdin and sys.stdin.isatty()):
        say(f"images: {command} fetches what makes it read them{size}")
    elif confirm(f"pull {reference.name}{size}, too, to read images?", otherwise=command):
        _fetched(reference, command, "without its projector")


def _draft_for(
    path: Path, target: Reference, machine: Machine, options: LoadOptions
) -> tuple[Reference, Path] | None:
    """Return the draft on the hub that suits a pulled target, downloaded.

    That is its prediction head or, if the user agrees, a draft model.
    """
    if _facts(path).kind != "chat":
        return None
    drafts = find_drafts(path)
    best = drafts.best
    has_head = bool(drafts.advice) or (best is not None and best.is_head)
    if not (has_head or is_offline()) and (head := _head_for(path, target, machine, options)):
        return head
    if best or drafts.advice:
        say(f"draft: {best.model.name} {best.why}" if best else f"no draft model: {drafts.advice}")
        return None
    if is_offline() or not (sys.stdin and sys.stdin.isatty()):
        return None
    show_line("looking for a draft model")
    try:
        offer = offer_draft(path, target, machine)
    finally:
        show_line()
    if offer is None:
        say(
            "no draft model was found for it: specchat drafts from the text itself, and `specchat"
            " derive --train` trains one"
        )
        return None
    say(f"a draft model for it: {offer.reference} ({offer.why})")
    command = _command_of_both(target, offer.reference)
    if not confirm("pull it too?", otherwise=f"{command} pulls both", default=True):
        return None
    return _fetched(offer.reference, command, "without a draft model")


def _head_for(
    path: Path, target: Reference, machine: Machine, options: LoadOptions
) -> tuple[Reference, Path] | None:
    """Return the prediction head on the hub for a pulled target, downloaded; None without one."""
    show_line("looking for a prediction head")
    try:
        offer = offer_head(path, target, machine, options)
    finally:
        show_line()
    if offer is None:
        return None
    say(f"its prediction head: {offer.reference} ({offer.why})")
    if offer.others:
        names = ", ".join(map(str, offer.others[:MOST_SHOWN]))
        say(f"other heads for it: {names}; pull one, and `specchat tune` measures which is fastest")
    if not offer.has_room:
        say(f"`specchat pull {offer.reference}` fetches it anyway")
        return None
    command = _command_of_both(target, offer.reference)
    return _fetched(offer.reference, command, "without its prediction head")


def _command_of_both(target: Reference, draft: Reference) -> str:
    return f"`specchat pull {shlex.join([str(target), '--draft', str(draft)])}`"


def _fetched(reference: Reference, command: str, otherwise: str) -> tuple[Reference, Path] | None:
    """Return a file with its path, once it is downloaded; None if the hub does not give it."""
    try:
        (path,) = _fetch([reference], command)
    except DownloadFailed as error:
        say(f"{otherwise}: {error}")
        return None
    print_exactly(str(path))
    return reference, path


def _recommended_pair(arguments: argparse.Namespace) -> Entry:
    """Return the best pair for this machine, and print why; ModelNotFound if none fits."""
    if arguments.draft:
        raise InvalidOption(
            "--draft requires a target: specchat pull org/repo/target.gguf --draft FILE"
        )
    if arguments.check:
        raise InvalidOption("--check requires a name: see `specchat list` for what is installed")
    machine = _machine()
    entry = recommend(load_entries().values(), machine)
    if entry is None:
        free = f" ({size_text(machine.free)} of memory free)" if machine.free else ""
        raise ModelNotFound(
            f"no pair fits this machine{free}: close other programs, or see `specchat list`"
        )
    say(f"recommended for this machine: {entry.name}. {entry.description}.")
    need, fit = size_text(need_of(entry) or 0), judge(need_of(entry), machine)
    unknown = "; free memory is unknown, so this is a small pair"
    judged = unknown if fit == "unknown" else f" and {fit}"
    rate = predicted_rate(entry, machine)
    speed = f" It is predicted to write {rate_text(rate)}." if rate else ""
    say(f"It needs about {need} of memory{judged}.{speed}")
    return entry


def _machine() -> Machine:
    """Return this machine; if no GPU is known, ask llama.cpp again: it may have been rebuilt."""
    machine = find_machine()
    if machine.gpus:
        return machine
    show_line("looking for GPUs")
    answer = ask_for_build()
    show_line()
    if not answer.report:
        say("GPUs could not be detected: `specchat doctor` shows why")
        return machine
    keep_gpus(gpus := gpus_of(answer.report.devices))
    return replace(machine, gpus=tuple(gpus))


def _report_damaged_pins() -> None:
    """Report a damaged pins file, and set it aside so that no pull overwrites it."""
    try:
        aside = set_aside_damaged_pins()
    except OSError as error:
        raise DownloadFailed(f"{pins_path()} cannot be read: {error.strerror}") from None
    if aside:
        say(f"{pins_path()} is damaged: kept as {aside.name}; checksums are taken from the hub")


def _files_of_pair(arguments: argparse.Namespace) -> Sequence[File]:
    """Return a pair's files. Raises ModelNotFound."""
    if arguments.draft:
        raise InvalidOption(
            f"{arguments.name} is a pair and has a draft: --draft goes with a target's file,"
            " org/repo/file.gguf"
        )
    return find_usable(arguments.name).files


def _check(references: Sequence[Reference], name: str, command: str) -> int:
    """Compare installed files with their checksums; `command` is the one that fetches them."""
    if not references:
        raise InvalidOption(f"{name} does not come from the hub: there is nothing to compare")
    for reference in references:
        if find_present(reference) is None:
            raise ModelNotFound(f"{reference} is not installed: {command} fetches it")
    code = DONE
    for reference in references:
        wrong = _wrong_files(reference)
        if not wrong:
            print(in_one_line(f"right: {reference}"))
        for path in wrong:
            say(f"wrong: {path} is not {reference}: delete it, then {command} fetches it again")
            code = FAILED
    return code


def _delete_wrong_files(references: Sequence[Reference]) -> None:
    for reference in filter(find_present, references):
        with suppress(SpecchatError):  # the checksum may be unknown
            for path in _wrong_files(reference):
                say(f"{path} is not {reference}: deleting it and downloading it again")
                path.unlink()


def _wrong_files(reference: Reference) -> list[Path]:
    with progress_line() as update:
        return [path for path, is_right in check(reference, update) if not is_right]


def _fetch(references: Sequence[Reference], command: str) -> list[Path]:
    """Download files and show the progress; after Ctrl+C, partial files are kept."""
    try:
        with progress_line() as update:
            return download(references, update, on_notice=_notify)
    except KeyboardInterrupt:
        say(f"stopped: {command} downloads the rest")
        raise


def _notify(text: str) -> None:
    """Print a notice in place of the progress line, which the next progress shows again."""
    show_line()
    say(text)


@contextmanager
def progress_line() -> Iterator[DownloadCallback]:
    """Show download progress on one line, or without a terminal as occasional new lines.

    Yields the function to call with the progress of one file.
    """
    is_terminal = sys.stderr.isatty()
    tally = Tally(TERMINAL_SECONDS if is_terminal else PLAIN_SECONDS)

    def update(progress: DownloadProgress) -> None:
        if not tally.update(progress):
            return
        line = ", ".join(filter(None, [*tally.in_words(), *tally.files_in_words()]))
        if is_terminal:
            show_line(line[: shutil.get_terminal_size().columns - 1])
        else:
            say(line)

    try:
        yield update
    finally:
        show_line()

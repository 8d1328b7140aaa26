"""The pair that suits this machine, offered by `specchat pull` without a name."""

from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.entry import Entry
from specchat.catalogue.fit import judge, need_of, recommend, size_of
from specchat.catalogue.installed import is_pair_here
from specchat.cli.progress_line import show_line, wipe_progress
from specchat.cli.terminal import confirm, say
from specchat.errors import ModelNotFound
from specchat.hub.cache import size_in_words
from specchat.llama.child_process import ask_for_build
from specchat.planning.device import gpus_of
from specchat.planning.machine import Machine, find_machine, keep_gpus


def agreed_pair() -> Entry | None:
    """Return the recommended pair, None if the user declines the download.

    An installed pair needs no confirmation. Raises ModelNotFound if no pair fits, and
    InvalidOption if there is no terminal to ask on.
    """
    machine = _machine()
    entry = recommend(load_entries().values(), machine)
    if entry is None:
        free = f" ({size_in_words(machine.free)} of memory free)" if machine.free else ""
        raise ModelNotFound(
            f"no pair fits this machine{free}: close other programs, or see `specchat list`"
        )
    _describe(entry, machine)
    return entry if is_pair_here(entry) or _agrees(entry) else None


def _machine() -> Machine:
    """Return this machine; without a known GPU, probe llama.cpp again.

    It may have been rebuilt since the last probe.
    """
    machine = find_machine()
    if machine.gpus:
        return machine
    show_line("looking for GPUs")
    answer = ask_for_build()
    wipe_progress()
    if not answer.report:
        say("GPUs could not be detected: `specchat doctor` shows why")
        return machine
    keep_gpus(gpus := gpus_of(answer.report.devices))
    return Machine(machine.free, tuple(gpus))


def _describe(entry: Entry, machine: Machine) -> None:
    need, fit = size_in_words(need_of(entry) or 0), judge(need_of(entry), machine)
    say(f"recommended for this machine: {entry.name}. {entry.description}.")
    if fit == "unknown":
        say(f"It needs about {need} of memory; the free memory is unknown, so it is a small one.")
    else:
        say(f"It needs about {need} of memory and {fit}.")


def _agrees(entry: Entry) -> bool:
    size = size_of(entry)
    shown = f" ({size_in_words(size)})" if size else ""
    otherwise = f"`specchat pull {entry.name}` pulls it"
    return confirm(f"pull {entry.name}{shown}?", otherwise=otherwise, default=True)

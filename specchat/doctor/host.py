"""Memory, disk, and the folders and files that specchat keeps things in."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import platformdirs

import specchat
from specchat.catalogue.catalogue_file import own_catalogue_path, read_catalogue
from specchat.catalogue.pairs import load_pairs
from specchat.doctor.finding import Finding
from specchat.doctor.repairs import reinstall
from specchat.errors import SpecchatError
from specchat.hub.cache import cache_root, size_in_words
from specchat.planning.machine import find_machine
from specchat.private_files import DAMAGED
from specchat.settings import read_settings, settings_path

__all__ = [
    "check_catalogue",
    "check_disk",
    "check_folders",
    "check_memory",
    "check_saved_files",
    "check_settings",
    "check_specchat",
]

LITTLE_MEMORY = 2 * 10**9
"""Bytes below which hardly a model of use fits."""

LITTLE_DISK = 5 * 10**9
"""Bytes below which hardly a pair of use fits."""


def check_specchat() -> Finding:
    """Say which specchat this is, and what runs it."""
    told = f"{specchat.__version__}, Python {platform.python_version()} on {platform.platform()}"
    return Finding("specchat", "ok", told)


def check_memory() -> Finding:
    """Say how much memory is free."""
    free = find_machine().free
    if free is None:
        return Finding("memory", "ok", "the system does not tell how much is free")
    told = f"{size_in_words(free)} free"
    if free < LITTLE_MEMORY:
        told += ", which is little for a model: end what you do not need"
        return Finding("memory", "warning", told, (_processes_command(),))
    return Finding("memory", "ok", told)


def check_disk() -> Finding:
    """Say how much room there is for models."""
    root = cache_root()
    free = shutil.disk_usage(_existing(root)).free
    told = f"{size_in_words(free)} free for models at {root}"
    if free < LITTLE_DISK:
        mend = ("specchat list", "specchat rm NAME  # or name a larger disk with HF_HOME")
        return Finding("disk", "warning", f"{told}, which is little", mend)
    return Finding("disk", "ok", told)


def check_folders() -> Iterator[Finding]:
    """Look whether specchat may write where it keeps things, and nobody else may read there."""
    folders = {
        "model cache": cache_root(),
        "config folder": platformdirs.user_config_path("specchat", appauthor=False),
        "data folder": platformdirs.user_data_path("specchat", appauthor=False),
        "state folder": platformdirs.user_state_path("specchat", appauthor=False),
        "log folder": platformdirs.user_log_path("specchat", appauthor=False),
    }
    for name, folder in folders.items():
        yield _folder(name, Path(folder), is_private=name != "model cache")


def check_saved_files() -> Finding:
    """Find files of specchat's own that were damaged and set aside."""
    folders = {
        platformdirs.user_data_path("specchat", appauthor=False),
        platformdirs.user_state_path("specchat", appauthor=False),
    }
    damaged = sorted(path for folder in folders for path in folder.glob(f"*{DAMAGED}-*"))
    if not damaged:
        return Finding("saved files", "ok", "none was damaged")
    names = "\n".join(f"{path} was damaged and replaced by a new file" for path in damaged)
    mend = tuple(f"rm {_q(path)}  # once you no longer need it" for path in damaged)
    return Finding("saved files", "warning", names, mend)


def check_settings() -> Finding:
    """Read the settings as every command does."""
    path = settings_path()
    try:
        read_settings()
    except SpecchatError as error:
        mend = ("specchat config edit",) if str(path) in str(error) else ()
        return Finding("settings", "problem", str(error), mend)
    is_there = "" if path.is_file() else " (not there: what is built in holds)"
    return Finding("settings", "ok", f"{path}{is_there}")


def check_catalogue() -> Finding:
    """Read the catalogues, and say which pairs are here."""
    try:
        mistakes, pairs = read_catalogue().mistakes, load_pairs()
    except SpecchatError as error:
        return Finding("catalogue", "problem", str(error), reinstall())
    if mistakes:
        return Finding("catalogue", "problem", "\n".join(mistakes), _mend_own_catalogue())
    own = [name for name in pairs if name != "demo"]
    if not own:
        told = "no pair is here but the demo pair, which knows little"
        return Finding("catalogue", "ok", f"{told}: specchat list names others")
    return Finding("catalogue", "ok", f"here and ready: {', '.join(own)}")


def _mend_own_catalogue() -> tuple[str, ...]:
    """Return what opens the user's models.toml in an editor, and what does without it."""
    path = _q(own_catalogue_path())
    usual = "notepad" if sys.platform == "win32" else "vi"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual
    return f"{editor} {path}", f"mv {path} {path}.old  # or do without it"


def _processes_command() -> str:
    if sys.platform == "win32":
        return "Get-Process | Sort-Object WorkingSet -Descending | Select-Object -First 10"
    return "top -o mem" if sys.platform == "darwin" else "ps aux --sort=-rss | head"


def _folder(name: str, folder: Path, *, is_private: bool) -> Finding:
    """Judge a folder, or where it is yet to be made, the one it will be made in."""
    place = _existing(folder)
    if not place.is_dir():
        return Finding(
            name, "problem", f"{place} is no folder", (f"mv {_q(place)} {_q(place)}.old",)
        )
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        owner = 'sudo chown -R "$(id -u)" ' if place.stat().st_uid != _user() else "chmod u+rwx "
        return Finding(name, "problem", f"{place} cannot be written", (owner + _q(place),))
    if place != folder:
        return Finding(name, "ok", f"{folder} (not there yet)")
    if is_private and sys.platform != "win32" and folder.stat().st_mode & 0o077:
        told, mend = f"{folder} can be read by other users", (f"chmod go-rwx {_q(folder)}",)
        return Finding(name, "warning", told, mend)
    return Finding(name, "ok", str(folder))


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _q(path: Path) -> str:
    return shlex.quote(str(path))

"""Set specchat up, and run it, on machines that lack something: one line each, and it heals.

    python scripts/check/check_broken_machines.py [--only WORD ...] [--list] [--wheels FOLDER]

Each machine is broken in one way: no compiler, no network, no home folder, a full disk, a damaged
environment, a killed set-up. What specchat prints must be one line that names the thing and the
next step, without a traceback; mended, the next call must answer. Prints a line per machine (what
was printed first, the exit code, whether it healed) and exits with 1 if one of them fails.

llama.cpp comes from the wheels in this user's cache, so set specchat up here first; the machines
that must build it are stopped as soon as the build has begun. Other users, file systems and
networks are made by root alone: without it those machines are skipped.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import TypeAlias

from scripts.setup_env import wheels
from scripts.support.broken_machine import (
    STRANGER,
    Failed,
    World,
    as_stranger,
    fill,
    find_python,
    mounted,
    wait_until,
)
from scripts.support.old_pythons import old_pythons

IS_ROOT = sys.platform == "linux" and os.geteuid() == 0
NO_CACHE = "/proc/nonexistent"
BUILDS = "building llama.cpp for this CPU"
STAGES = ("venv", "packages", "specchat", "llama")
"""The stamps that a set-up leaves, in order."""
OWN_MOUNTS = "CHECK_HAS_ITS_OWN_MOUNTS"
CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long shift(void) { const char *text = getenv("CLOCK_SHIFT"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t id, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += shift();
    return (int)failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *place) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (place) *place = exact.tv_sec;
    return exact.tv_sec;
}
"""
"""A library that moves the clock of the programs that load it."""
Machine: TypeAlias = Callable[[World], str]

MACHINES: dict[str, Machine] = {}
FOR_ROOT = set[str]()


class Skipped(Exception):
    """Raised where a machine cannot be made here."""


def machine(*, needs_root: bool = False) -> Callable[[Machine], Machine]:
    """Return a decorator that lists a machine under its docstring.

    It breaks the world, mends it, and returns what was printed first.
    """

    def add(made: Machine) -> Machine:
        name = (made.__doc__ or "").rstrip(".")
        MACHINES[name] = made
        if needs_root:
            FOR_ROOT.add(name)
        return made

    return add


# --- tools --------------------------------------------------------------------------------------


def path_with(world: World, *tools: str) -> str:
    """Return a PATH with these tools only."""
    folder = world.folder / "tools"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for each in tools:
        if found := shutil.which(each, path="/usr/local/bin:/usr/bin:/bin"):
            (folder / each).symlink_to(found)
    return str(folder)


def starts_to_build(world: World) -> None:
    """Call the set-up without a wheel in its cache; stop it when it builds. Raises Failed."""

    def stop(child: subprocess.Popen[str]) -> None:
        for line in child.stderr or []:
            if BUILDS in line:
                break
        child.terminate()

    seen = world.call("ask", "hi", variables={"XDG_CACHE_HOME": NO_CACHE}, during=stop)
    if seen.code != 143 or world.left_running():
        raise Failed(f"the build was not stopped (exit code {seen.code}): {seen.errors[-300:]}")


@machine()
def old_python(world: World) -> str:
    """An old Python, and no other."""
    world.fresh()
    old = old_pythons()
    if not old:
        raise Skipped("there is no Python before 3.11 here")
    newest, lines = world.python, []
    alone = {"PATH": path_with(world, "apt-get")}
    says = r"Python 3\.11 or newer was not found \(this is .*\): .*install.*, then run"
    try:
        for each in old:
            world.python = str(each)
            lines.append(world.fails(says, variables=alone))
        newer = f"{Path(newest).parent}{os.pathsep}{os.environ['PATH']}"
        world.answers(variables={"PATH": newer})
    finally:
        world.python = newest
    return lines[0]


@machine()
def no_compiler(world: World) -> str:
    """No C++ compiler."""
    return without_tool(world, "cc", r"needs a C\+\+ compiler: .*, then run this again")


@machine()
def no_c_compiler(world: World) -> str:
    """No C compiler."""
    return without_tool(world, "c++", r"needs a C compiler: .*, then run this again")


def without_tool(world: World, left: str, says: str) -> str:
    """Set up with one compiler only, and then with both; return what was printed first."""
    world.fresh()
    variables = {
        "PATH": path_with(world, left, "apt-get", "sh", "as", "ld"),
        "XDG_CACHE_HOME": NO_CACHE,
    }
    begun = time.monotonic()
    line = world.fails(says, variables=variables)
    if time.monotonic() - begun > 10 or (world.clone / ".venv" / "bin").exists():
        raise Failed("it was not said before packages were fetched")
    starts_to_build(world)
    world.answers()
    return line


@machine()
def no_headers(world: World) -> str:
    """No C++ headers."""
    world.fresh()
    tools = world.folder / "wrapped"
    tools.mkdir(exist_ok=True)
    (tools / "c++").write_text('#!/bin/sh\nexec /usr/bin/c++ -nostdinc++ "$@"\n')
    (tools / "c++").chmod(0o755)
    line = world.fails(
        r"c\+\+ cannot compile C\+\+ programs \(.*filesystem.*\): .*, then run this again",
        variables={"PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": NO_CACHE},
    )
    starts_to_build(world)
    world.answers()
    return line


@machine(needs_root=True)
def no_network(world: World) -> str:
    """No network, nothing cached."""
    world.fresh()
    home = world.folder / "empty"
    home.mkdir(exist_ok=True)
    alone = {"HOME": str(home), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    without = {name: None for name in os.environ if name.startswith("PIP_")}
    line = world.fails(
        r"check the network connection, then run this again",
        before=["unshare", "--net"],
        variables={**without, **alone, "XDG_CACHE_HOME": str(world.home / ".cache" / "wheels")},
    )
    world.answers()
    return line


# --- users and homes ----------------------------------------------------------------------------


@machine(needs_root=True)
def nobody_sets_up(world: World) -> str:
    """No HOME, and a user whom the system does not know: set-up."""
    world.fresh()
    give_away(world.clone)
    stranger = as_stranger(world.python)
    line = world.fails("no home folder: set HOME", before=stranger, variables={"HOME": None})
    give_away(world.home)
    world.answers(before=stranger)
    return line


@machine(needs_root=True)
def nobody_runs(world: World) -> str:
    """No HOME, and a user whom the system does not know: set up before."""
    world.ready()
    stranger = as_stranger(world.python)
    says, homeless = "no home folder: set HOME to a folder that you can write to", {"HOME": None}
    lines = [
        world.fails(says, *words, before=stranger, variables=homeless)
        for words in (("list",), ("ask", "hi"), ("doctor",), ("history", "list"), ("pull", "x"))
    ]
    home = world.folder / "given"
    home.mkdir(exist_ok=True)
    give_away(home)
    world.answers(before=stranger, variables={"HOME": str(home)})
    world.chats(before=stranger, variables={"HOME": str(home)})
    return lines[0]


@machine()
def nonexistent_home(world: World) -> str:
    """HOME does not exist."""
    world.ready()
    runs_with(world, {"HOME": "/proc/nonexistent"})
    return world.answers(variables={"HOME": "/proc/nonexistent"})


@machine(needs_root=True)
def read_only_home(world: World) -> str:
    """HOME is read-only."""
    world.fresh()
    give_away(world.clone)
    stranger = as_stranger(world.python)
    first = world.answers(before=stranger, variables={"XDG_CACHE_HOME": str(world.home / ".cache")})
    home = world.folder / "read-only"
    home.mkdir(exist_ok=True)
    runs_with(world, {"HOME": str(home)}, before=stranger)
    return first


@machine(needs_root=True)
def full_home(world: World) -> str:
    """The disk of HOME is full."""
    world.ready()
    with mounted(world.folder / "small", "size=1m") as home:
        filling = fill(home)
        runs_with(world, {"HOME": str(home), "XDG_CACHE_HOME": str(world.home / ".cache")})
        full = {"HOME": str(home)}
        line = world.fails("not enough disk space in", "pull", "smollm2-135m", variables=full)
        filling.unlink()
        world.answers(variables=full)
    return line


def runs_with(world: World, variables: dict[str, str], before: list[str] | None = None) -> None:
    """Run what needs no place to write: the list, the demo's answer, the chat, the doctor.

    The chat wants to store conversations; the line that says it cannot names the option to do
    without.
    """
    how = {"variables": variables, "before": before or []}
    listed = world.call("list", **how)  # type: ignore[arg-type]
    if listed.code or "demo" not in listed.output or listed.lines:
        raise Failed(f"list: {listed.errors}")
    world.answers(**how)
    examined = world.call("doctor", **how)  # type: ignore[arg-type]
    if examined.code not in {0, 1} or "catalogue" not in examined.output or examined.lines:
        raise Failed(f"doctor: exit code {examined.code}, {examined.errors}")
    refused = "cannot store conversations in "
    world.chats(shows=refused, **how)  # type: ignore[arg-type]
    world.chats("--no-history", **how)  # type: ignore[arg-type]


def give_away(folder: Path) -> None:
    """Make the stranger the owner of a folder and all that is in it."""
    subprocess.run(["chown", "-R", str(STRANGER), folder], check=True)


# --- folders and disks --------------------------------------------------------------------------


@machine(needs_root=True)
def folder_of_another(world: World) -> str:
    """A folder of another user."""
    world.fresh()
    stranger = as_stranger(world.python)
    line = world.fails("Permission denied; make .* writable, or copy it", before=stranger)
    give_away(world.clone)
    give_away(world.home)
    world.answers(before=stranger)
    return line


@machine(needs_root=True)
def read_only_system(world: World) -> str:
    """A read-only file system."""
    clone = world.fresh()
    with mounted(clone, "bind,ro", source=str(clone)):
        line = world.fails("Read-only file system; make .* writable, or copy it")
    world.answers()
    return line


@machine(needs_root=True)
def noexec(world: World) -> str:
    """A disk mounted noexec."""
    with mounted(world.folder / "disk", "size=1500m", "mode=755") as disk:
        world.fresh("disk/clone")
        subprocess.run(["mount", "-o", "remount,noexec", str(disk)], check=True)
        line = world.fails("mounted noexec, so programs cannot run there: move")
        subprocess.run(["mount", "-o", "remount,exec", str(disk)], check=True)
        world.answers()
    return line


@machine(needs_root=True)
def small_disk(world: World) -> str:
    """A disk that is too small."""
    with mounted(world.folder / "disk", "size=60m", "mode=755") as disk:
        world.fresh("disk/clone")
        line = world.fails(
            r"not enough disk space in .*: about \d+ MB needed, \d+ MB free; free some"
        )
        subprocess.run(["mount", "-o", "remount,size=1500m", str(disk)], check=True)
        world.answers()
    return line


@machine(needs_root=True)
def full_at_each_stage(world: World) -> str:
    """A disk that is full at each stage."""
    lines = []
    with mounted(world.folder / "disk", "size=1500m", "mode=755") as disk:
        world.fresh("disk/clone")
        for stamp in (None, *STAGES[:3]):
            filling = Path()

            def during(_: object, stamp: str | None = stamp) -> None:
                nonlocal filling
                is_reached = (
                    world.records / "setup.log" if not stamp else world.records / stamp
                ).exists
                wait_until(is_reached, f"the stage {stamp}")
                filling = fill(disk)

            lines.append(world.fails(r"no space left on the disk \(\d+ MB free in ", during=during))
            filling.unlink()
        world.answers()
    return lines[0]


@machine()
def no_temporary_folder(world: World) -> str:
    """No folder for temporary files."""
    world.fresh()
    return world.answers(variables={"TMPDIR": "/nonexistent"})


@machine(needs_root=True)
def full_temporary(world: World) -> str:
    """Temporary files on a disk that is too small."""
    world.fresh()
    says = r"no space left on the disk \(\d MB free in .*small\)"
    with mounted(world.folder / "small", "size=3m", "mode=777") as disk:
        line = world.fails(says, variables={"TMPDIR": str(disk)})
    world.answers()
    return line


@machine(needs_root=True)
def noexec_temporary(world: World) -> str:
    """Temporary files on a disk mounted noexec."""
    world.fresh()
    with mounted(world.folder / "disk", "size=500m", "mode=777", "noexec") as disk:
        return world.answers(variables={"TMPDIR": str(disk)})


@machine()
def odd_path(world: World) -> str:
    """A path with spaces, accents and quotes, and LANG=C."""
    world.fresh('it\'s a "föld$er"; 日本')
    plain = {"LANG": "C", "LC_ALL": "C"}
    first = world.answers(variables=plain)
    world.chats(variables=plain)
    return first


@machine()
def other_encoding(world: World) -> str:
    """A path with a byte that is not UTF-8."""
    clone = world.fresh(os.fsdecode(b"f\xf6lder"))
    line = world.fails("has a byte in its name that is not UTF-8: rename that folder, then run")
    world.clone = clone.rename(world.folder / "renamed")
    world.answers()
    return line


# --- damaged environments -----------------------------------------------------------------------


@machine()
def no_interpreter(world: World) -> str:
    """The environment's Python is gone."""
    world.ready()
    (world.clone / ".venv" / "bin" / "python").unlink()
    return world.answers()


@machine()
def upgraded(world: World) -> str:
    """The system's Python is a newer one now."""
    world.ready()
    inside = world.clone / ".venv" / "lib"
    (folder,) = inside.glob("python3.*")
    folder.rename(inside / "python3.9")  # where the Python of before looked
    python = world.clone / ".venv" / "bin" / "python"
    target = python.resolve()
    python.unlink()
    newer = world.clone / ".venv" / "bin" / "newer"
    newer.symlink_to(target)
    moved = world.folder / "python3.newer"
    with suppress(FileExistsError):
        moved.write_text(f'#!/bin/sh\nexec "{target}" "$@"\n')
    moved.chmod(0o755)
    python.symlink_to(moved)
    return world.answers()


@machine()
def moved(world: World) -> str:
    """The folder was moved."""
    clone = world.ready()
    other = world.folder / "moved"
    shutil.rmtree(other, ignore_errors=True)
    world.clone = clone.rename(other)
    return world.answers()


@machine()
def package_gone(world: World) -> str:
    """A package is gone from the environment."""
    world.ready()
    (numpy,) = (world.clone / ".venv").glob("lib/python3*/site-packages/numpy")
    shutil.rmtree(numpy)
    line = world.fails("the package numpy is missing from .*: rm .*, then run this again")
    command = line.partition(": rm ")[2].partition(", then")[0]
    subprocess.run(["sh", "-c", f"rm {command}"], check=True)
    world.answers()
    return line


@machine()
def damaged_stamps(world: World) -> str:
    """Stamps that a crash left empty or cut short."""
    world.ready()
    for name in ("ready", "packages", "llama", "choices"):
        path = world.records / name
        path.write_bytes(path.read_bytes()[:7] + b"\xff\0")
    return world.answers()


@machine()
def file_in_the_way(world: World) -> str:
    """A file in place of the environment."""
    world.fresh()
    (world.clone / ".venv").touch()
    line = world.fails("Not a directory; remove .*, then run this again")
    (world.clone / ".venv").unlink()
    world.answers()
    return line


# --- interruptions ------------------------------------------------------------------------------


@machine()
def stopped_in_each_stage(world: World) -> str:
    """Stopped and killed in each stage."""
    signals = cycle([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    first = ""
    for _ in range(3):
        world.fresh()
        for stamp in (None, *STAGES[:3]):
            number = next(signals)
            stop_at(world, stamp, number)
        next(signals)
        first = first or "interrupted; the next call continues from here"
        world.answers()
        if world.left_running():
            raise Failed("something was left running")
    return first


def stop_at(world: World, stamp: str | None, number: signal.Signals) -> None:
    """Send a signal to a set-up when a stage has begun, and check how it ends."""

    def during(child: subprocess.Popen[str]) -> None:
        reached = world.records / (stamp or "setup.log")
        wait_until(reached.exists, f"the stage {stamp}")
        time.sleep(0.3)
        child.send_signal(number)

    seen = world.call("ask", "hi", during=during)
    code, says = {
        signal.SIGINT: (130, "interrupted; the next call continues from here"),
        signal.SIGTERM: (143, "terminated; the next call continues from here"),
        signal.SIGKILL: (-9, ""),
    }[number]
    if seen.code != code or not (seen.lines or [""])[-1].endswith(says):
        raise Failed(f"{number.name} in stage {stamp}: code {seen.code}, {seen.errors[-300:]}")
    if number is not signal.SIGKILL and world.left_running():
        raise Failed(f"{number.name} in stage {stamp} leaves something running")


@machine()
def killed_in_build(world: World) -> str:
    """Killed in the build, which goes on by itself."""
    world.fresh()
    without = {"XDG_CACHE_HOME": NO_CACHE}

    def kill(child: subprocess.Popen[str]) -> None:
        for line in child.stderr or []:
            if BUILDS in line:
                break
        wait_until(lambda: bool(list(world.records.glob("build/*/objects/build.ninja"))), "ninja")
        child.kill()

    world.call("ask", "hi", variables=without, during=kill)
    if not world.left_running():
        raise Failed("the build has ended")
    seen = world.call("ask", "hi")
    if seen.code or "stopping what a set-up that was killed left running" not in seen.errors:
        raise Failed(f"exit code {seen.code}: {seen.errors}")
    return seen.errors.splitlines()[0]


@machine()
def two_at_once(world: World) -> str:
    """Two set-ups at once."""
    world.fresh()
    with world.start("ask", "hi") as first:
        wait_until((world.records / "setup.log").exists, "the first one")
        seen = world.call("ask", "hi")
        first.communicate()
    if seen.code or first.returncode or "waiting for another set-up" not in seen.errors:
        raise Failed(f"exit codes {first.returncode} and {seen.code}: {seen.errors}")
    return seen.errors.splitlines()[0]


@machine()
def wrong_clock(world: World) -> str:
    """A clock that is wrong."""
    if not shutil.which("cc"):
        raise Skipped("moving the clock takes a C compiler")
    source, library = world.folder / "clock.c", world.folder / "clock.so"
    source.write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    first = ""
    for years in (-45, 40):
        world.fresh()
        seconds = str(years * 365 * 24 * 3600)
        shifted = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": seconds}
        seen = world.call("ask", "hi", variables=shifted)
        if seen.code:
            first = world.fails("set this machine's date and time, then run", variables=shifted)
        else:
            first = first or seen.errors.splitlines()[0]
        world.answers()
    return first


# ------------------------------------------------------------------------------------------------


@contextmanager
def temporary_world(cache: Path) -> Iterator[World]:
    """Yield a world in a temporary folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        world = World(Path(folder), find_python() if IS_ROOT else sys.executable)
        world.cache_wheels(cache)
        yield world


def main() -> int:
    """Go through the machines and print a line for each; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="machines with this in their name"
    )
    parser.add_argument("--list", action="store_true", help="print the machines' names")
    usual = wheels.cache_folder()
    parser.add_argument("--wheels", type=Path, default=usual, help="the folder of cached wheels")
    arguments = parser.parse_args()
    chosen = {
        name: made
        for name, made in MACHINES.items()
        if any(word.lower() in name.lower() for word in arguments.only)
    }
    if arguments.list:
        print("\n".join(chosen))
        return 0
    if IS_ROOT and not os.environ.get(OWN_MOUNTS):  # what is mounted ends with this process
        os.environ[OWN_MOUNTS] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])  # noqa: S606
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the folder is removed then, too
    failed = 0
    with temporary_world(arguments.wheels) as world:
        for name, made in chosen.items():
            begun = time.monotonic()
            verdict, text = "ok", ""
            try:
                if name in FOR_ROOT and not IS_ROOT:
                    raise Skipped("it takes root")  # noqa: TRY301
                text = f"{made(world)} (healed)"
            except Skipped as skipped:
                verdict, text = "skipped", str(skipped)
            except Failed as failure:
                verdict, text = "FAILED", str(failure)
                failed += 1
            seconds = time.monotonic() - begun
            shown = text.replace(str(world.folder), "...").replace("\n", " | ")
            print(f"{verdict:8}{seconds:5.0f} s  {name}: {shown}", flush=True)
    print(f"{failed} of {len(chosen)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

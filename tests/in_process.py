"""Commands run in the test's own process, where a process of their own would take a second."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread

import pytest

from pseudo_terminal import ROOT
from specchat.cli import main
from specchat.engine.local_engine import LocalEngine
from specchat.sharing import process_engine

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def run_here(
    *words: str | Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run specchat without a terminal, its engine in this process, too, and return what it does."""
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(stdin)
        given.seek(0)
        files = [file.fileno() for file in (given, output, errors)]
        with _changed(environment), _streams(files):
            code = main([*map(str, words)])
        printed = []
        for file in (output, errors):
            file.seek(0)
            printed.append(file.read())
    return subprocess.CompletedProcess([*words], code, *printed)


def say_here(
    *words: str | Path, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run specchat as `run_here` does; what it prints is text."""
    done = run_here(*words, stdin=stdin, **environment)
    printed = (part.decode() for part in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *printed)


def on_terminal_here(words: list[str], key: str = "", **environment: str) -> str:
    """Run specchat on a pseudo-terminal as `on_terminal` does, but in this process."""
    resource_tracker.ensure_running()  # it would keep this terminal as its own
    leader, follower = pty.openpty()
    painted, has_ended = bytearray(), Event()
    reader = Thread(target=_read, args=(leader, key, painted, has_ended))
    reader.start()
    try:
        is_over = suppress(SystemExit)  # of --help and --version
        with _changed(environment), _streams([follower] * 3), is_over:
            main(words)
    finally:
        has_ended.set()
        reader.join()
        os.close(follower)
        os.close(leader)
    return painted.decode("utf-8", "replace")


def _read(leader: int, key: str, painted: bytearray, has_ended: Event) -> None:
    """Read what is painted until nothing more comes; press a key when asked for one."""
    while True:
        was_last = has_ended.is_set()
        if select.select([leader], [], [], 0.05)[0]:
            painted += os.read(leader, 65536)
            if key and painted.endswith((b"quits: ", b"] ")):
                os.write(leader, key.encode())
                key = ""
        elif was_last:
            return


@contextmanager
def _changed(environment: Mapping[str, str]) -> Iterator[None]:
    """Set variables, and load engines into this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name, text in environment.items():
            patch.setenv(name, text)
        load_here(patch)
        yield


def load_here(patch: pytest.MonkeyPatch) -> None:
    """Let commands load their engines into this process."""
    patch.setattr(process_engine, "ProcessEngine", LocalEngine)


@pytest.fixture
def engines_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands load their engines into this process."""
    load_here(monkeypatch)


@contextmanager
def _streams(files: Sequence[int]) -> Iterator[None]:
    """Let files be the standard streams, also of libraries and of processes that are started."""
    kept = [os.dup(number) for number in range(3)]
    streams = [getattr(sys, name) for name, _ in STREAMS]
    for number, file in enumerate(files):
        os.dup2(file, number)
    try:
        for number, (name, mode) in enumerate(STREAMS):
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        yield
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for (name, _), stream in zip(STREAMS, streams, strict=True):
            setattr(sys, name, stream)
        for number, file in enumerate(kept):
            os.dup2(file, number)
            os.close(file)

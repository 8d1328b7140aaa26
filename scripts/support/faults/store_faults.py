"""Faults of the disk and of the history's file."""

import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from scripts.support.chat_terminal import ROOT, Failed
from specchat.chat.store import Store
from specchat.errors import StoreBusy, StoreFailed

PAGE = 4096
WRITING = """
import sys
from pathlib import Path
from specchat.chat.store import Store
with Store(Path(sys.argv[1])) as store:
    for number in range(1000):
        conversation = store.begin()
        question = store.add(conversation.id, "user", f"question {number}")
        answer = store.add(conversation.id, "assistant", "", question.id)
        for length in range(1, 6):
            store.write(answer.id, f"{number} " + "word " * 300 * length)
            print(answer.id, length, flush=True)
"""
"""Writes answers as a chat does, and says after each write what is stored now."""

COMPLETE = re.compile(r"\d+ \d+\n")


def filled(path: Path, chance: random.Random) -> dict[int, int]:
    """Fill a store in another process and kill it at random; return what it said is stored."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", WRITING, str(path)]
    said: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None  # noqa: S101  # it is a pipe
        for _ in range(chance.randrange(5, 60)):
            answer, length = map(int, writer.stdout.readline().split())
            said[answer] = length
        writer.kill()
        for line in filter(COMPLETE.fullmatch, writer.stdout):  # it may be killed in one
            answer, length = map(int, line.split())
            said[answer] = length
    return said


def check(path: Path, said: dict[int, int], may_lose: int = 0) -> None:
    """Check that a store has all that was said to be stored."""
    with Store(path) as store:
        trees = [store.tree(each.id) for each in store.conversations()]
        texts = {number: each.text for tree in trees for number, each in tree.items()}
        missing = [
            answer
            for answer, length in said.items()
            if texts.get(answer, "").count("word") < 300 * length
        ]
        if len(missing) > may_lose:
            raise Failed(f"{len(missing)} answers are lost")
        store.add(store.begin().id, "user", "And on.")


def killed_writer(path: Path, chance: random.Random) -> str:
    """Kill a writer with SIGKILL."""
    check(path, filled(path, chance))
    return ""


def power_cut(path: Path, chance: random.Random) -> str:
    """Tear what follows the last write that was said to be done, as a power cut may."""
    said = filled(path, chance)
    log = path.with_name(path.name + "-wal")
    with log.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.write(chance.randbytes(chance.randrange(0, 3 * PAGE)))
        if chance.random() < 0.5:
            file.truncate(size + chance.randrange(0, PAGE))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    check(path, said)
    return ""


def damaged(path: Path, chance: random.Random) -> str:
    """Overwrite a page; all that is not on it is recovered, and the damaged file is kept."""
    said = filled(path, chance)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'message'"
        (root,) = database.execute(query).fetchone()
    content = bytearray(path.read_bytes())
    page = chance.choice([each for each in range(1, len(content) // PAGE) if each != root - 1])
    content[page * PAGE : (page + 1) * PAGE] = chance.choice([bytes(PAGE), chance.randbytes(PAGE)])
    path.write_bytes(content)
    for _ in range(3):  # it may be found by reading or by writing
        try:
            check(path, said, may_lose=8)
        except StoreBusy as error:
            if "damaged" not in str(error):
                raise
        else:
            return "the history was damaged: ... were recovered"
    raise Failed("damaged again and again")


def full_disk(path: Path, chance: random.Random) -> str:
    """Let no file grow; what was refused is stored when there is room."""
    with Store(path) as store:
        conversation = store.begin()
        question = store.add(conversation.id, "user", "A question")
        answer = store.add(conversation.id, "assistant", "", question.id)
        text = "word " * chance.randrange(20_000, 60_000)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        room = path.stat().st_size + chance.randrange(0, 20 * PAGE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            store.write(answer.id, text, finish="stop")
        except StoreFailed as error:
            message = str(error)
        else:
            raise Failed("written on a full disk")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        store.write(answer.id, text, finish="stop")
        if store.tree(conversation.id)[answer.id].text != text:
            raise Failed("not stored when there was room")
    return message.replace(str(path), "...")


def locked(path: Path, chance: random.Random) -> str:
    """Hold the write lock; a writer that does not wait gets an error, and succeeds afterwards."""
    with Store(path, busy_timeout=chance.uniform(0, 0.1)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            try:
                store.begin()
            except StoreBusy as error:
                message = str(error)
            else:
                raise Failed("written in spite of the lock")
            other.execute("ROLLBACK")
        store.begin()
    return message


def read_only(path: Path, chance: random.Random) -> str:
    """Put a folder in the place of the file; the error names it."""
    path.mkdir(parents=True)
    try:
        Store(path).close()
    except StoreFailed as error:
        return str(error).replace(str(path), "...")
    raise Failed("opened a folder")


FAULTS = {
    "history: writer killed": killed_writer,
    "history: power cut": power_cut,
    "history: damaged page": damaged,
    "history: full disk": full_disk,
    "history: locked": locked,
    "history: not a file": read_only,
}


def play(name: str, folder: Path, chance: random.Random) -> str:
    """Inject a fault; check that nothing stored is lost and nothing else is left."""
    path = folder / "data" / "history.db"
    path.parent.mkdir(parents=True)
    message = FAULTS[name](path, chance)
    left = {each.name for each in path.parent.iterdir() if "damaged" not in each.name}
    if left - {"history.db"}:
        raise Failed(f"left behind: {', '.join(sorted(left))}")
    shutil.rmtree(folder)
    return message

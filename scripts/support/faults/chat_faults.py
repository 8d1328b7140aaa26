"""Faults of the engine and of the chat, injected into the real chat in a terminal."""

import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scripts.support.chat_terminal import Chat, Failed
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.chat.store import Store

MOMENTS = ("loading", "prompt", "streaming", "streaming", "idle")
QUESTION = "Write a long story about a fox."
LONGEST_UNSAVED = 1.0
Fault = Callable[[Chat, random.Random], str]


def to_moment(chat: Chat, moment: str, chance: random.Random) -> None:
    """Bring the chat to a moment of its life."""
    chat.see("sk anything")
    if moment == "loading":
        chat.engine()
        chat.read(chance.uniform(0, 0.5))
        return
    chat.see("▱▱")  # once the pair is loaded
    chat.ask(QUESTION)
    if moment == "prompt":
        chat.read(chance.uniform(0, 0.1))
        return
    chat.until(lambda: any(text for text, _ in chat.answers()), "a stored answer")
    if moment == "idle":
        chat.press("\x1b")
        chat.until(lambda: chat.answers()[-1][1], "the end of the answer")
        chat.read(chance.uniform(0, 0.3))
    else:
        watch(chat, chance.uniform(0.1, 2.0))


def watch(chat: Chat, seconds: float) -> None:
    """Watch the answer grow; Failed if nothing is stored for longer than a second."""
    end = time.monotonic() + seconds
    last, since = "", time.monotonic()
    while (now := time.monotonic()) < end:
        text, finish = chat.answers()[-1]
        if text != last or finish:
            last, since = text, now
        elif now - since > LONGEST_UNSAVED:
            raise Failed(f"nothing stored for {now - since:.1f} s")
        chat.read(0.03)


def stored(chat: Chat) -> list[str]:
    """Return the texts of all answers stored now."""
    return [text for text, _ in chat.answers()]


def ask_again(chat: Chat) -> None:
    """Ask once more; the answer must come."""
    before = len(chat.answers())
    chat.ask("And then?")
    chat.until(lambda: any(text for text in stored(chat)[before:]), "another answer")
    chat.press("\x1b")
    chat.until(lambda: chat.answers()[-1][1], "its end")


def leave(chat: Chat) -> None:
    """Quit; the exit code must be 0."""
    chat.read(0.3)  # else it is taken for a part of the Escape before it
    chat.press("\x11")
    chat.wait()
    if chat.code:
        raise Failed(f"exit code {chat.code}")


def engine_killed(number: signal.Signals) -> Fault:
    """Return a fault that ends the engine by a signal; the next question is answered."""

    def act(chat: Chat, chance: random.Random) -> str:
        chat.clear()
        chat.engine().send_signal(number)
        chat.see(number.name)
        ask_again(chat)
        leave(chat)
        return f"the engine process was ended by {number.name}"

    return act


def engine_out_of_memory(chat: Chat, chance: random.Random) -> str:
    """Let the engine have no more memory; it fails or carries on, and is restarted."""
    engine = chat.engine()
    with suppress(ProcessLookupError):
        resource.prlimit(engine.pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
    chat.read(1.0)
    chat.press("\x1b")
    chat.read(0.5)
    chat.press("\x12")
    ask_again(chat)
    leave(chat)
    return "(Ctrl+R restarts it)"


def engine_stopped(chat: Chat, chance: random.Random) -> str:
    """Stop the engine's process; Esc names the key that restarts it."""
    chat.engine().send_signal(signal.SIGSTOP)
    before = len(chat.answers())
    if not before or chat.answers()[-1][1]:
        chat.ask("Are you there?")
    chat.clear()
    chat.press("\x1b")
    chat.read(0.3)
    if chat.answers() and not chat.answers()[-1][1]:
        chat.see("Ctrl+R")
    chat.press("\x12")
    ask_again(chat)
    leave(chat)
    return "The engine does not respond. Ctrl+R restarts it."


def chat_ended(number: signal.Signals) -> Fault:
    """Return a fault that ends the chat by a signal."""

    def act(chat: Chat, chance: random.Random) -> str:
        chat.send(number)
        chat.wait()
        wanted = 128 + number if number == signal.SIGTERM else -number
        if chat.code != wanted:
            raise Failed(f"exit code {chat.code} after {number.name}")
        return ""

    return act


def terminal_closed(chat: Chat, chance: random.Random) -> str:
    """Close the terminal's window."""
    chat.remember()
    chat.hang_up()
    chat.wait()
    return ""


def suspended(chat: Chat, chance: random.Random) -> str:
    """Suspend the chat and resume it."""
    chat.send(signal.SIGSTOP)
    chat.read(chance.uniform(0.1, 1.0))
    chat.send(signal.SIGCONT)
    if chat.answers() and not chat.answers()[-1][1]:
        chat.press("\x1b")
        chat.until(lambda: chat.answers()[-1][1], "the end of the answer")
    ask_again(chat)
    leave(chat)
    return ""


def model_removed(chat: Chat, chance: random.Random) -> str:
    """Remove the target's file, and restart the engine: one line says what is missing."""
    target = chat.database.parents[2] / "model" / "target.gguf"
    target.unlink()
    chat.press("\x1b")
    chat.read(0.5)
    chat.clear()
    chat.press("\x12")
    chat.see("no such file")
    leave(chat)
    return "...: no such file; check the path, ..."


FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "engine: SIGKILL": (engine_killed(signal.SIGKILL), MOMENTS),
    "engine: SIGSEGV": (engine_killed(signal.SIGSEGV), MOMENTS),
    "engine: SIGABRT": (engine_killed(signal.SIGABRT), MOMENTS),
    "engine: no more memory": (engine_out_of_memory, ("streaming", "idle")),
    "engine: SIGSTOP": (engine_stopped, ("prompt", "streaming", "idle")),
    "chat: SIGKILL": (chat_ended(signal.SIGKILL), MOMENTS),
    "chat: SIGTERM": (chat_ended(signal.SIGTERM), MOMENTS),
    "chat: SIGHUP": (chat_ended(signal.SIGHUP), MOMENTS),
    "chat: terminal closed": (terminal_closed, MOMENTS),
    "chat: suspended, resumed": (suspended, MOMENTS),
    "model file removed": (model_removed, ("streaming", "idle")),
}


def play(name: str, folder: Path, chance: random.Random) -> str:
    """Inject a fault at a random moment and check what must hold; return the chat's message."""
    fault, moments = FAULTS[name]
    options: tuple[str, ...] = ()
    if fault is model_removed:
        pair = find_pair(DEMO)
        (folder / "model").mkdir(parents=True, exist_ok=True)
        target = folder / "model" / "target.gguf"
        shutil.copy(pair.target, target)
        options = ("--target", str(target), "--draft", str(pair.draft))
    chat = Chat(folder, *options)
    try:
        to_moment(chat, chance.choice(moments), chance)
        before = stored(chat)
        message = fault(chat, chance)
        check_after(chat, before)
    finally:
        chat.kill()
    return message


def check_after(chat: Chat, before: list[str]) -> None:
    """Check the history, and that nothing but it is left."""
    with Store(chat.database) as store:
        if store.notice:
            raise Failed(store.notice)
        texts = [
            message.text
            for conversation in store.conversations()
            for message in store.tree(conversation.id).values()
            if message.role == "assistant"
        ]
    for text in before:
        if not any(each.startswith(text) for each in texts):
            raise Failed("stored text is lost")
    left = {each.name for each in chat.database.parent.iterdir()} - {"history.db", "draft.lock"}
    left |= {each.name for each in chat.temporary.iterdir()}
    if left:
        raise Failed(f"left behind: {', '.join(sorted(left))}")

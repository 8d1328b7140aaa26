"""Questions about images keep to their own answers."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from typing import Any

import pytest

from specchat import Image
from specchat.errors import EngineFailed
from specchat.sharing.engine_host import readable
from specchat.sharing.image_questions import ImageQuestions, answer

FIRST, SECOND = Image(b"first"), Image(b"second")


class Unreadable(Image):
    """An image of a script's own class, which no other process can make again."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@contextmanager
def asking(
    tokens_of: Callable[[Image], list[int]], end_process: Callable[[], None] = lambda: None
) -> Iterator[tuple[ImageQuestions, Any]]:
    """Answer questions in another thread; give what asks them, and its connection."""
    ours, theirs = Pipe()
    answering = threading.Thread(target=answer, args=(theirs, tokens_of, readable))
    answering.start()
    questions = ImageQuestions(ours, end_process)
    try:
        yield questions, ours
    finally:
        questions.close()
        answering.join(60)
        assert not answering.is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_an_interrupted_question_leaves_no_answer_to_the_next() -> None:
    """The next image has its own tokens, not those of the image before."""
    main, is_interrupted = threading.get_ident(), threading.Event()

    def tokens_of(image: Image) -> list[int]:
        if image == FIRST:
            signal.pthread_kill(main, signal.SIGINT)
            assert is_interrupted.wait(60)
        return [image.num_bytes]

    with asking(tokens_of) as (questions, _):
        with pytest.raises(KeyboardInterrupt):
            questions.tokens_of(FIRST)
        is_interrupted.set()
        assert questions.tokens_of(SECOND) == [len(SECOND.data)]


def test_an_image_of_any_class_can_be_asked_about() -> None:
    """Only what identifies it is sent, so that no process has to know the class."""
    with asking(lambda image: [*image.digest]) as (questions, _):
        for shown in (Unreadable(b"any"), FIRST):
            assert questions.tokens_of(shown) == [*shown.digest]


def test_an_interrupt_within_a_message_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a question may be sent, so no other can follow."""
    ended: list[bool] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with asking(lambda _: [], lambda: ended.append(True)) as (questions, connection):
        with monkeypatch.context() as patch:
            patch.setattr(connection, "_send_bytes", interrupted)
            with pytest.raises(KeyboardInterrupt):
                questions.tokens_of(FIRST)
        assert ended == [True]


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_a_question_that_cannot_be_read_leaves_nobody_waiting(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails, and so do later ones, whatever ended the thread that answers."""
    ours, theirs = Pipe()

    def unreadable() -> None:
        raise error

    def answering() -> None:
        with suppress(ValueError):
            answer(theirs, lambda _: [], readable)

    monkeypatch.setattr(theirs, "recv", unreadable)
    thread = threading.Thread(target=answering)
    thread.start()
    questions = ImageQuestions(ours, lambda: None)
    for _ in range(2):
        with pytest.raises(EngineFailed, match="try again"):
            questions.tokens_of(FIRST)
    questions.close()
    thread.join(60)

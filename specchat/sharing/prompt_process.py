"""Prompts made in a process of their own: what is wrong with a request is known before its turn.

The process has the target's vocabulary and no weights. Its work may take seconds, or crash in
native code, and the answers in progress notice nothing. It has no projector either: images come to
it as the tokens that the engine makes of them.
"""

import multiprocessing
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, Literal, TypeAlias

from specchat.errors import Cancelled, EngineFailed, InvalidOption, SpecchatError
from specchat.planning.host_resources import processor_seconds
from specchat.requests.answer_request import AnswerRequest, ChatRequest, sendable
from specchat.requests.gap import Gap
from specchat.requests.prompt_facts import PromptFacts
from specchat.sharing.engine_host import LOG, readable, send_output_to
from specchat.sharing.engine_process import start_process

LONGEST = 5.0
"""Seconds of processor time that one request may take, which others wait for; the longest prompts
take about two. Elapsed time would refuse short requests on a busy machine. Templates, rendered in a
child, have limits of their own."""
SECONDS_TO_START = SECONDS_TO_ANSWER = 60.0
POLL_SECONDS = 0.05
Method: TypeAlias = Literal[
    "check", "render", "render_closed", "fill", "facts", "tokenize", "detokenize"
]
"""A method of `prompts.preparing.Preparation`."""
ImageTable: TypeAlias = Mapping[str, Sequence[int]]
"""The tokens of images by their marks, as the engine makes them."""
NO_IMAGES: ImageTable = {}


class PromptProcess:
    """The process that prepares prompts, called from one thread; any may close it."""

    def __init__(self, target: Path, capacity: int) -> None:
        """Start the process for a target whose context holds `capacity` tokens."""
        self._target, self._capacity = target, capacity
        self._is_closed = self._is_ready = False
        self._start()

    def check(self, request: AnswerRequest, images: ImageTable = NO_IMAGES) -> int:
        """Return how many tokens a request's prompt has; `images` has those of its images.

        Raises what is wrong with it: ContextFull, InvalidOption or TemplateError.
        """
        size: int = self._call("check", sendable(request), images=images)
        return size

    def render(self, request: AnswerRequest, images: ImageTable = NO_IMAGES) -> list[int]:
        """Return the tokens of a request's prompt. Raises what `check` does."""
        tokens: list[int] = self._call("render", sendable(request), images=images)
        return tokens

    def render_closed(self, request: ChatRequest, images: ImageTable = NO_IMAGES) -> list[int]:
        """Return the tokens of a conversation after which no answer begins; raises as `check`."""
        tokens: list[int] = self._call("render_closed", sendable(request), images=images)
        return tokens

    def fill(self, gap: Gap) -> list[int]:
        """Return the tokens of a prompt that asks for a gap to be filled.

        Raises InvalidOption for a model that cannot do that, and ContextFull.
        """
        tokens: list[int] = self._call("fill", gap)
        return tokens

    def facts(self) -> PromptFacts:
        """Return what a client may ask about the model's prompts."""
        facts: PromptFacts = self._call("facts")
        return facts

    def tokenize(self, text: str, *, special: bool, begins: bool) -> list[int]:
        """Return the tokens of a text, as `Engine.tokenize` does. Raises what `check` does."""
        tokens: list[int] = self._call("tokenize", text, special=special, begins=begins)
        return tokens

    def detokenize(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the text of each token. Raises InvalidOption for an unknown one."""
        pieces: list[bytes] = self._call("detokenize", tokens)
        return pieces

    def close(self) -> None:
        """End the process; a call in progress fails."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()

    def _call(
        self, method: Method, *arguments: Any, images: ImageTable = NO_IMAGES, **keywords: Any
    ) -> Any:
        if not self._process.is_alive():
            self._start()
        try:
            self._wait_until_ready()
            self._connection.send((method, arguments, keywords, images))
            self._wait_for_answer()
            value, error = self._connection.recv()
        except (EOFError, OSError):
            raise self._failure() from None
        if error is not None:
            raise error
        return value

    def _wait_for_answer(self) -> None:
        """Wait until a request is prepared. Raises InvalidOption if that takes too long."""
        process, deadline = self._process.pid or 0, monotonic() + SECONDS_TO_ANSWER
        before, left = processor_seconds(process), LONGEST
        while not self._connection.poll(left):
            left = LONGEST - (processor_seconds(process) - before)
            if left <= 0:
                self._end()
                raise InvalidOption(
                    f"the request takes more than {LONGEST:g} s to prepare: shorten it"
                )
            if monotonic() > deadline:
                self._end()
                raise EngineFailed("the process that reads requests does not answer: try again")
            left = max(left, POLL_SECONDS)

    def _start(self) -> None:
        if self._is_closed:
            raise self._failure()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(theirs, self._target, self._capacity), daemon=True,
            name="specchat prompts",
        )  # fmt: skip
        self._is_ready = False
        start_process(self._process)
        theirs.close()
        if self._is_closed:  # meanwhile, by another thread
            raise self._failure()

    def _wait_until_ready(self) -> None:
        if self._is_ready:
            return
        if not self._connection.poll(SECONDS_TO_START):
            raise EOFError
        _, error = self._connection.recv()
        if error is not None:
            raise error
        self._is_ready = True

    def _failure(self) -> SpecchatError:
        self._end()  # what it may still send answers another question
        if self._is_closed:
            return Cancelled("the server is shutting down")
        if self._is_ready:  # its text may have crashed native code: it would again
            return InvalidOption("the request could not be read: shorten it")
        return EngineFailed("the process that reads requests could not be started: try again")


def _run(connection: Connection, target: Path, capacity: int) -> None:
    """Prepare prompts until the client is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # otherwise a crash starts a debugger
    send_output_to(LOG)
    from specchat.llama.model import Model
    from specchat.planning.context_shape import ModelOptions
    from specchat.prompts.image_parts import KnownImages
    from specchat.prompts.preparing import Preparation

    with suppress(EOFError, OSError):
        try:
            model = Model(target, ModelOptions(gpu_layers=0, vocabulary_only=True))
        except Exception as error:  # noqa: BLE001  # the client must receive every error
            connection.send((None, readable(error)))
            return
        connection.send((None, None))
        preparation = Preparation(model, capacity, foresees_next=False)
        while True:
            method, arguments, keywords, images = connection.recv()
            model.vision = KnownImages(images) if images else None
            value, failure = None, None
            try:
                value = getattr(preparation, method)(*arguments, **keywords)
            except Exception as error:  # noqa: BLE001  # as above
                failure = readable(error)
            connection.send((value, failure))

"""Reads the prompts of requests before they are queued, in processes that no answer waits for."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from specchat.errors import Cancelled, InvalidOption, ModelWontLoad, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image
from specchat.prompts.prompt_room import FAR, too_long
from specchat.requests.answer_request import AnyRequest, ChatRequest
from specchat.sharing.prompt_process import ImageTable, PromptProcess
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import QueueFull
from specchat.system.clone import set_up_images

Result = TypeVar("Result")
ENDING = "the answer was stopped: the server is shutting down"
MOST_AT_ONCE = 64
"""Requests that are read before they are queued; each may be as large as the largest body."""
SECONDS_OF_IMAGES = 30.0
"""How long the images of a request may take before no further one is read: others wait for them."""


class Prompts:
    """The prompts of a server with one engine.

    Images become tokens in the engine's process, beside its answers, and everything else in a
    process of its own.
    """

    def __init__(self, engine: SharedEngine, target: Path) -> None:
        """Start the process."""
        self._engine = engine
        self._process = PromptProcess(target, engine.facts.context)
        self._preparing = ThreadPoolExecutor(1, "prompts")
        self._looking = ThreadPoolExecutor(1, "images")
        self._count = 0
        self._opened = -1
        """The number of the engine that has opened its projector, which takes the first image long.
        """

    async def checked(self, request: AnyRequest) -> AnyRequest:
        """Return a request that can be answered.

        What images of tools' results cannot be read, a sentence in their place says: an agent sends
        them on its own account, and they must not end the conversation. Raises what is wrong with
        the request: ContextFull, InvalidOption, TemplateError; QueueFull; or Cancelled.
        """
        with self._being_read():
            request, images = await self._seen(request)
            await done_on(self._preparing, self._process.check, request, images)
        return request

    async def tokens(self, request: AnyRequest, *, is_closed: bool = False) -> list[int]:
        """Return the tokens of a request's prompt; if it `is_closed`, no answer begins there.

        Raises what `checked` does.
        """
        with self._being_read():
            request, images = await self._seen(request)
            if is_closed and isinstance(request, ChatRequest):
                return await done_on(self._preparing, self._process.render_closed, request, images)
            return await done_on(self._preparing, self._process.render, request, images)

    async def call(self, method: Callable[..., Result], *given: Any, **more: Any) -> Result:
        """Call another method of the process. Raises QueueFull, Cancelled and what it raises."""
        with self._being_read():
            return await done_on(self._preparing, method, self._process, *given, **more)

    def close(self) -> None:
        """End the process; what waits for it fails with Cancelled."""
        self._process.close()
        for executor in (self._preparing, self._looking):
            executor.shutdown(wait=False)

    async def _seen(self, request: AnyRequest) -> tuple[AnyRequest, ImageTable]:
        """Return a request with what can be read of its images, and these as tokens.

        Those are none for a model that reads text only, which the process says.
        """
        found, count, seconds = dict[str, list[int]](), 0, 0.0

        def look(image: Image) -> list[int]:
            nonlocal seconds
            if lack := set_up_images(lambda _: None):  # after what a clone makes just now
                raise InvalidOption(lack)
            began = monotonic()  # not before: it may have waited for those of others
            number = self._engine.num_restarts
            try:
                tokens = self._engine.image_tokens(image)
            except SpecchatError:
                seconds += monotonic() - began
                raise
            if self._opened == number:
                seconds += monotonic() - began
            self._opened = number
            return tokens

        facts = self._engine.facts
        for image in request.images if facts.takes_images else ():
            if seconds > SECONDS_OF_IMAGES:
                raise InvalidOption(
                    f"messages: reading the images takes more than {SECONDS_OF_IMAGES:.0f} s: send"
                    " fewer or smaller ones"
                )
            try:
                tokens = await done_on(self._looking, look, image)
            except (InvalidOption, ModelWontLoad) as error:  # of the image, of the projector
                request = _without(request, image, error)
                continue
            found[image.mark], count = tokens, count + len(tokens)
            if count > FAR * facts.context:
                raise too_long(count, facts.context, is_all=False)
        return request, found

    @contextmanager
    def _being_read(self) -> Iterator[None]:
        if self._count >= MOST_AT_ONCE:
            raise QueueFull(f"{self._count} requests are being read: try again later")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def done_on(
    executor: ThreadPoolExecutor, act: Callable[..., Result], *given: Any, **more: Any
) -> Result:
    """Return the result of a function on another thread. Raises Cancelled after the shutdown."""
    try:
        future = executor.submit(act, *given, **more)
    except RuntimeError:
        raise Cancelled(ENDING) from None
    return await asyncio.wrap_future(future)


def _without(request: AnyRequest, image: Image, error: SpecchatError) -> AnyRequest:
    """Return a request with an error in the place of an image; raise it unless a tool sent that."""
    if not isinstance(request, ChatRequest):
        raise error
    others = [each for each in request.images if each.mark != image.mark]
    messages = [_told(message, image, error) for message in request.messages]
    return replace(request, messages=messages, images=others)


def _told(message: ChatMessage, image: Image, error: SpecchatError) -> ChatMessage:
    if image.mark not in str(message.get("content")):
        return message
    if message["role"] != "tool":
        raise error
    reason = str(error).removeprefix("messages: ")
    return {**message, "content": message["content"].replace(image.mark, f"[{reason}]")}

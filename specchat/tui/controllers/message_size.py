"""How many tokens the message being written has, and what is read before it; no Textual here."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specchat.chat.answer_statistics import NUM_MEASURED, reading_rate
from specchat.chat.conversation import with_attachments
from specchat.errors import SpecchatError, StoreFailed
from specchat.images.image import Image, with_images
from specchat.requests.prompt_size import PromptSize, estimated_tokens
from specchat.system.current_folder import current_folder
from specchat.tui.commands import is_slash
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.image_checks import CheckedImage, ImageChecks
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.questions import Questions
from specchat.tui.controllers.session import Post, Sizing
from specchat.tui.mentions import NamedFiles, named_files
from specchat.tui.texts.schema_text import structure_of

QUIET_SECONDS = 0.25
"""A message is counted once nothing was typed for this long."""
LEAST_SECONDS, LEAST_TOKENS = 1.0, 256
"""What is read again in less time, or if that is not known in fewer tokens, is not mentioned."""


@dataclass(slots=True)
class MessageSize:
    """Counts the message in the composer with the model's tokenizer, in the engine's process.

    Until that has counted, for example during an answer, the size is estimated. Where something
    else than the message changes the prompt, what is read again is counted without a message.
    """

    view: ChatView
    conversations: Conversations
    questions: Questions
    answers: Answers
    options: AnswerOptions
    pair_controller: PairController
    checks: ImageChecks
    post: Post
    written: Callable[[], tuple[str, str]] = lambda: ("", "")
    """Returns the text of the composer, and that with its pasted texts in full."""
    size: PromptSize | None = None
    """None while there is no message."""
    is_estimate: bool = False
    images: Sequence[CheckedImage] = ()
    """The images that the message names."""
    num_again: int = 0
    """The tokens of the conversation that the next question has read again."""
    again_s: float = 0.0
    """About how long that takes here; 0.0 if it is not known."""
    _asked: object = None
    """What the prompt depends on beside the message."""
    _is_new: bool = False
    """Whether that has changed since the last count, and not by asking."""
    _count: int = 0
    """The number of changes so far: what belongs to an earlier one is dropped."""
    _is_waiting: bool = False

    def changed(self, *, is_empty: bool = False) -> None:
        """Count the message again, once nothing more is typed; called at every key."""
        self._count += 1
        if is_empty:
            self._show_images(())
            self._show(None)
        if not self._is_waiting:
            self._is_waiting = True
            self._look_later()

    def follow(self) -> None:
        """Count again if the next prompt is another one: after `/system`, a switch, an edit.

        An answer that ends leaves the memory as it is, and the engine to a title.
        """
        chat = self.conversations
        before = chat.number, chat.leaf, self.questions.editing, chat.system_prompt, chat.schema
        controller = self.pair_controller
        model = controller.session, controller.facts is None, self.options.thinking
        if (asked := (before, model)) != self._asked:
            self._asked, self._is_new = asked, self.answers.current is None
            self._show_again(0)
            if self._is_new:
                self.changed()

    def _look_later(self) -> None:
        self.view.later(QUIET_SECONDS, partial(self._look, self._count))

    def _look(self, number: int) -> None:
        """Count the message, unless something was typed since; then wait again."""
        if number != self._count:
            self._look_later()
            return
        self._is_waiting = False
        written, text = self.written()
        if "@" not in written:
            self._show_images(())
        if not text.strip() or is_slash(written.rstrip()):
            self._show(None)
            if self._is_new:
                self._ask_without_message(number)
        elif "@" in written:
            edited = self.conversations.tree.get(self.questions.editing or 0)
            known = [*self.checks.known, *(edited.images if edited else ())]
            arguments = number, written, text, current_folder(), known
            threading.Thread(target=self._read_files, args=arguments, daemon=True).start()
        else:
            self._ask(number, text)

    def _read_files(
        self, number: int, written: str, text: str, folder: Path, known: Sequence[Image]
    ) -> None:
        """Read the files that the message names, in a thread of its own."""
        try:
            named = named_files(written, folder, known)
        except SpecchatError:  # sending it says what is wrong
            named = NamedFiles()
        images = [self.checks.check(each) for each in named.images]
        self.post(self._ask, number, with_attachments(text, named.attachments), images)

    def _ask(self, number: int, content: str, images: Sequence[CheckedImage] = ()) -> None:
        """Ask the engine for the size; show an estimate until it answers."""
        if number != self._count:
            return
        if images:
            self.checks.held = {each.image.name: each.image for each in images}
        self._show_images(images)
        facts = self.pair_controller.facts
        takes_images = facts is not None and facts.takes_images
        shown = [each.image for each in images if takes_images and not each.wrong]
        estimate = estimated_tokens(content)
        session = self.pair_controller.session
        if session is None or not session.is_loaded or self.answers.current is not None:
            self._show(PromptSize(estimate), is_estimate=True)
        if session is None:
            return
        session.size(self._sizing(content, partial(self._counted, number, estimate), shown))

    def _ask_without_message(self, number: int) -> None:
        """Ask the engine what the next question has it read again, whatever that is."""
        session, is_local = self.pair_controller.session, self.pair_controller.pair.server is None
        is_free = self.answers.current is None and bool(self.conversations.branch)
        if session is not None and is_local and is_free:
            session.size(self._sizing(".", partial(self._counted, number, None)))

    def _sizing(
        self,
        content: str,
        on_size: Callable[[PromptSize | None], None],
        images: Sequence[Image] = (),
    ) -> Sizing:
        """Return the request for the prompt with which a message would be asked now."""
        chat = self.conversations
        edited = chat.tree.get(self.questions.editing or 0)
        before = edited.parent if edited else chat.leaf
        schema = chat.schema.source if chat.schema else ""
        turns = chat.turns(before, schema, with_images(content, images))
        options = {
            "images": (*chat.tree.images(before), *images),
            "think": self.options.thinking,
            "max_tokens": self.options.current.get("max_tokens"),
            "pinned": chat.pinned_turns(before, schema),
            "structure": structure_of(schema),
        }
        return Sizing(turns, options, on_size)

    def _counted(self, number: int, estimate: int | None, size: PromptSize | None) -> None:
        """Show the size, or the estimate where the engine cannot count; None without a message."""
        if number != self._count:
            return
        self._is_new = False
        self._show_again(size.read_again if size and self.conversations.branch else 0)
        if estimate is not None:
            self._show(size or PromptSize(estimate), is_estimate=size is None)

    def _show_again(self, num_again: int) -> None:
        """Show how many tokens are read again, unless that takes no time to speak of."""
        seconds, rate = 0.0, None
        if num_again:
            with suppress(StoreFailed):  # it may be in use
                records = self.conversations.store.statistics(NUM_MEASURED)
                rate = reading_rate(records, self.pair_controller.pair.name)
            seconds = num_again / rate if rate else 0.0
            is_short = seconds < LEAST_SECONDS if rate else num_again < LEAST_TOKENS
            num_again = 0 if is_short else num_again
        if (num_again, seconds) != (self.num_again, self.again_s):
            self.num_again, self.again_s = num_again, seconds
            self.view.show_frame()

    def _show_images(self, images: Sequence[CheckedImage]) -> None:
        if images != self.images:
            self.images = images
            self.view.show_frame()

    def _show(self, size: PromptSize | None, *, is_estimate: bool = False) -> None:
        if (size, is_estimate) != (self.size, self.is_estimate):
            self.size, self.is_estimate = size, is_estimate
            self.view.show_frame()

"""Questions: asking, editing, asking again, continuing and branching off; no Textual here."""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from specchat.chat.conversation import Attachment, Message
from specchat.decoding.chunk import Chunk
from specchat.errors import SpecchatError
from specchat.images.image import Image
from specchat.safe_text import harmless
from specchat.system.current_folder import current_folder
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.commands import CANCEL_EDIT, KeyOf
from specchat.tui.controllers.answers import SHOW_INTERVAL, Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.image_checks import ImageChecks
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.writing import Writing
from specchat.tui.mentions import NamedFiles, named_files
from specchat.tui.texts.figures import own_options
from specchat.tui.texts.line_below import ENDINGS, is_written_elsewhere
from specchat.tui.texts.sampling_text import only_sampling
from specchat.tui.texts.schema_text import structure_of


class Queued(NamedTuple):
    """A question that waits: for an answer to end, for its images to be checked, for another one.

    Its files were read when it was sent: they may change or go while it waits.
    """

    written: str
    text: str
    named: NamedFiles
    conversation: int


NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})


class Questions:
    """Asks what the user wants answered, one question at a time."""

    def __init__(
        self,
        view: ChatView,
        conversations: Conversations,
        pair_controller: PairController,
        answers: Answers,
        checks: ImageChecks,
        key_of: KeyOf,
    ) -> None:
        self.editing: int | None = None
        """The question that is being edited."""
        self.queued: list[Queued] = []
        """The questions that wait; those of other conversations wait until these are open."""
        self._view = view
        self._conversations = conversations
        self._pair_controller = pair_controller
        self._answers = answers
        self._checks = checks
        self._key_of = key_of
        answers.on_free = self._ask_queued_soon

    def reset(self) -> None:
        """After a switch of conversations, drop a pending edit and show this one's figures."""
        self.editing = None
        self._view.say("", "context")
        self._answers.recall()
        self._ask_queued_soon()

    @property
    def waiting(self) -> list[Queued]:
        """The questions that wait in the open conversation."""
        number = self._conversations.number
        return [each for each in self.queued if each.conversation == number]

    async def ask(self, written: str, text: str = "") -> None:
        """Ask a question, or a new version of the edited one; put it back if it cannot be sent.

        `text` is `written` with placeholders for pasted texts replaced, empty if there are none.
        While an answer is being written, the question is queued, and while images are checked: its
        own, or those of a question before it.
        """
        try:
            named = await self._named(written)
            is_next = self._answers.current is None and not self.waiting
            if is_next:
                self._checks.require_reader(named.images)
            if not is_next or named.images:
                # before its images are written, as nothing else can be meanwhile
                number = self._conversations.stored_number()
                self._checks.try_again()
                if not is_next or self._checks.begin(named.images, self._ask_queued):
                    self.queued.append(Queued(written, text, named, number))
                    self._view.show_state()
                    return
        except SpecchatError as error:
            self._refuse(written, error)
            return
        await self._ask(written, text, named)

    async def _ask(self, written: str, text: str, named: NamedFiles) -> None:
        """Ask a question whose images are checked; put it back if it cannot be sent."""
        chat = self._conversations
        edited = chat.tree.get(self.editing or 0)
        try:
            before = chat.tree.images(edited.parent if edited else chat.leaf)
            self._checks.require_reader(named.images, before)
            self._checks.require_whole(named.images)
            question = self._add_question(named, text or written)
        except SpecchatError as error:
            self._refuse(written, error)
            return
        is_edit, self.editing = self.editing is not None, None
        if is_edit:
            await self._view.show_branch()
        else:
            await self._view.add(question.id)
        await self._answer(question.id, self._conversations.schema_for(question.id))

    async def answer_again(self, question: int, options: Mapping[str, Any] = NO_OPTIONS) -> None:
        """Ask for another version of the answer to a question, with options for it alone."""
        if not self._answers.is_busy():
            if not self._can_read(question):
                return
            schema = self._conversations.schema_for(question)
            await self._answer_anew(question, schema, options=options)

    def _can_read(self, question: int | None) -> bool:
        """Return True if the model reads the images up to a question; otherwise say why not."""
        reason = self._checks.why_no_reader((), self._conversations.tree.images(question))
        if reason:
            self._view.report(reason)
        return not reason

    def can_regenerate(self) -> bool:
        """Return True if there is a question to answer again; otherwise notify the user."""
        has_question = any(each.role == "user" for each in self._conversations.branch)
        if not has_question:
            self._view.notify("There is no question to answer again yet.")
        return has_question

    async def regenerate(self, options: Mapping[str, Any] = NO_OPTIONS) -> None:
        """Answer the last question again, with options for this answer alone."""
        if self.can_regenerate():
            questions = [each for each in self._conversations.branch if each.role == "user"]
            await self.answer_again(questions[-1].id, options)

    async def go_on(self) -> None:
        """Continue an answer that is not complete."""
        last = self._conversations.last
        if last is None or last.role != "assistant":
            self._view.notify("There is no answer to continue yet.")
            return
        display = await self._view.last_answer()
        is_elsewhere = is_written_elsewhere(last.finish, last.statistics)
        if is_elsewhere or last.finish not in ENDINGS or display is None:
            busy = "Another chat is still writing this answer."
            self._view.notify(busy if is_elsewhere else "The last answer is complete.")
            return
        if not self._can_read(last.parent):
            return
        known = self._conversations.writes.steps_of(last.id)
        steps = list(known.steps if known else ())
        parts, before = AnswerParts.of(last), last.statistics
        writing = Writing(last.id, display, parts, steps, before, last.finish)
        writing.is_joined = not parts.is_empty
        structure = structure_of(last.schema)  # its own, which may have been changed since
        sampling = only_sampling(own_options(before))
        self._answers.send(writing, last.parent or 0, structure=structure, **sampling)
        writing.wait(self._view.later, self._pair_controller.is_timing)

    async def branch_off(self, answer: int, begun: Sequence[Chunk], target: str) -> None:
        """Write another version of an answer, which begins with these steps of that target."""
        message, facts = self._conversations.tree[answer], self._pair_controller.facts
        question = message.parent
        if question is None or self._answers.is_busy():
            return
        if not target:
            self._view.notify(f"{self._key_of('go_on')} continued this answer: it cannot branch.")
        elif facts is None:
            self._pair_controller.require_session()  # it may have been unloaded
            self._view.notify("The model is still loading: try again in a moment.")
        elif facts.target != target:
            models = self._key_of("models")
            words = (
                f"{harmless(target)} wrote this answer. {models} switches to it; then try again."
            )
            self._view.notify(words, severity="warning")
        elif self._can_read(question):
            await self._answer_anew(question, message.schema, begun)

    @property
    def ends(self) -> str:
        """What `stop` ends now: "stop" an answer, or else an edit; empty if neither is there."""
        if self._answers.here is not None:
            return "stop"
        return "" if self.editing is None else CANCEL_EDIT

    def stop(self) -> None:
        """Stop the answer; without one, cancel an edit."""
        if self.ends == "stop":
            self._answers.stop()
        elif self.ends:
            self.editing = None
            self._view.rewrite("")
            self._view.show_state()

    def _ask_queued_soon(self) -> None:
        if self.waiting:
            self._view.later(SHOW_INTERVAL, self._ask_queued)

    async def _ask_queued(self) -> None:
        """Ask the first question that waits, once its images are checked."""
        if not self.waiting or self._answers.current is not None:
            return
        first = self.waiting[0]
        if not self._checks.begin(first.named.images, self._ask_queued):
            self.queued.remove(first)
            try:
                await self._ask(first.written, first.text, first.named)
            finally:
                self._ask_queued_soon()  # where this one was refused, no answer's end does it

    def _refuse(self, written: str, error: SpecchatError) -> None:
        self._view.put_back(written)
        self._view.report(error)

    async def _named(self, written: str) -> NamedFiles:
        """Return the files that a question names, read in a thread: they may be large."""
        if "@" not in written:
            return NamedFiles()
        edited = self._conversations.tree.get(self.editing or 0)
        known: list[Attachment | Image] = [*self._checks.known]
        if edited:
            known += [*edited.attachments, *edited.images]
        return await asyncio.to_thread(named_files, written, current_folder(), known)

    def _add_question(self, named: NamedFiles, text: str) -> Message:
        edited = self._conversations.tree.get(self.editing or 0)
        question = self._conversations.ask(
            text, named.attachments, images=named.images, instead_of=edited
        )
        for notice in named.notices():
            self._view.notify(notice)
        for name in named.missing:
            words = f'No file "@{harmless(name)}": sent as plain text.'
            self._view.notify(words, severity="warning")
        return question

    async def _answer_anew(
        self,
        question: int,
        schema: str,
        begun: Sequence[Chunk] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
    ) -> None:
        """Ask for another answer in place of what stands below a question.

        That is shown again if the answer cannot be begun, as while another program uses the store.
        """
        before, self._conversations.leaf = self._conversations.leaf, question
        await self._view.show_branch()
        shown = before if before != question else None
        try:
            await self._answer(question, schema, begun, options, shown_before=shown)
        except SpecchatError:
            if self._conversations.leaf == question:  # else the answer was begun
                self._conversations.leaf = before
                await self._view.show_branch()
            raise

    async def _answer(
        self,
        question: int,
        schema: str,
        begun: Sequence[Chunk] = (),
        options: Mapping[str, Any] = NO_OPTIONS,
        shown_before: int | None = None,
    ) -> None:
        """Ask the pair to answer a question, once it is loaded.

        The answer follows a JSON Schema unless that is empty, and may begin with steps.
        """
        message = self._conversations.answer(question, schema)
        display = await self._view.add(message.id)
        writing = Writing(message.id, display, begun=begun, shown_before=shown_before)
        self._answers.send(writing, question, structure=structure_of(schema), **options)
        writing.wait(self._view.later, self._pair_controller.is_timing)
        self._view.show_conversations()

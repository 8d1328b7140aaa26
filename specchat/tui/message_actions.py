"""What can be done with one message: copying, editing, answering again, deleting, its versions."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from specchat.chat.answer_statistics import measured_answers
from specchat.chat.safe_text import harmless
from specchat.tui.main_view import Actions
from specchat.tui.screens.dialogs import ChoiceScreen, ListEntry
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.screens.statistics_screen import StatisticsScreen
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.typesetter import code_blocks


class MessageActions(Actions):
    """Does what a `MessageView` asks for."""

    async def act(self, what: str, view: MessageView) -> None:
        """Do something with a message; most of it has to wait for the answer being written."""
        at_once = {"copy": self.copy, "copy_code": self.copy_code, "steps": self.show_steps}
        when_idle: dict[str, Callable[[MessageView], Awaitable[None]]] = {
            "edit": self._edit,
            "regenerate": self._regenerate,
            "delete": self._delete,
            "previous_branch": partial(self._turn, -1),
            "next_branch": partial(self._turn, 1),
        }
        if what in at_once:
            at_once[what](view)
        elif view.message_id not in self.app.conversations.tree:
            return  # an earlier key has deleted it
        elif not self.app.answers.is_busy():
            await when_idle[what](view)

    def copy(self, view: MessageView) -> None:
        """Copy the text of a message."""
        self._copy(view.text, "message")

    def copy_code(self, view: MessageView) -> None:
        """Copy a block of code, asking which if there are several."""
        blocks = code_blocks(view.text)
        if len(blocks) > 1:
            self.app.run_worker(self._choose_code(blocks))
        else:
            self._copy("".join(blocks), "code")

    def show_steps(self, view: MessageView) -> None:
        """Step through an answer."""
        steps = self.app.answers.steps.get(view.message_id, [])
        if any(step.tokens for step in steps):
            self.app.push_screen(StepsScreen(steps))
        else:
            self.app.notify("Steps are only available for answers of this session.")

    def show_last_steps(self) -> None:
        """Step through the last answer."""
        if views := self._answers:
            self.show_steps(views[-1])
        else:
            self.app.notify("There is no answer to step through yet.")

    def show_statistics(self) -> None:
        """Show the statistics of the answers in the branch."""
        branch = self.app.conversations.branch
        if measured_answers(branch):
            self.app.push_screen(StatisticsScreen(branch))
        else:
            self.app.notify("No statistics yet: they come with the first answer.")

    def show_help(self, keys: Mapping[str, str]) -> None:
        """Explain the figure under the cursor, or open the documentation."""
        if figure := self.app.query_one(Panel).under_cursor:
            figure.explain()
        else:
            self.app.push_screen(HelpScreen(keys))

    def copy_last(self) -> None:
        """Copy the last answer."""
        self._copy(self._answers[-1].text if self._answers else "", "answer")

    @property
    def _answers(self) -> list[AnswerView]:
        return [each for each in self.app.view.transcript.views if isinstance(each, AnswerView)]

    def _copy(self, text: str, what: str) -> None:
        if text:
            self.app.copy_to_clipboard(text)
        else:
            self.app.notify(f"There is no {what} to copy.")

    async def _choose_code(self, blocks: list[str]) -> None:
        choices = [
            ListEntry(str(place), block.strip().partition("\n")[0], f"{block.count(chr(10))} lines")
            for place, block in enumerate(blocks)
        ]
        choices.append(ListEntry("all", "All", f"{len(blocks)} blocks"))
        chosen = await self.app.push_screen_wait(ChoiceScreen("Which code?", choices))
        if chosen:
            self._copy("\n".join(blocks) if chosen == "all" else blocks[int(chosen)], "code")

    async def _edit(self, view: MessageView) -> None:
        if isinstance(view, QuestionView):
            self.app.answers.editing = view.message_id
            self.app.view.put_back(harmless(view.text))
            self.app.view.composer.focus()
            self.app.view.show_state()

    async def _regenerate(self, view: MessageView) -> None:
        message = self.app.conversations.tree[view.message_id]
        question = message.id if message.role == "user" else message.parent
        if question is not None:
            await self.app.answers.answer_again(question)

    async def _turn(self, step: int, view: MessageView) -> None:
        version = self.app.conversations.turn_to(view.message_id, step)
        if version is not None:
            self.app.answers.recall()
            await self.app.view.show_branch()
            await self.app.view.reveal(version)

    async def _delete(self, view: MessageView) -> None:
        self.app.conversations.delete(view.message_id)
        self.app.answers.recall()
        await self.app.view.show_branch()
        self.app.view.composer.focus()
        self.app.notify("Deleted with all that followed. /undo restores it.")

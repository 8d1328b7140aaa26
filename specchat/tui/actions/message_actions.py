"""Actions on one message: copy, edit, regenerate, delete, and switch between versions."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from specchat.chat.answer_statistics import measured_answers
from specchat.decoding.chunk import Chunk
from specchat.docs import section
from specchat.safe_text import harmless
from specchat.tui.actions.context_actions import ContextActions
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.markdown.typesetter import code_blocks
from specchat.tui.screens.dialogs import ChoiceScreen, ListEntry, deletion
from specchat.tui.screens.help_screen import ExplainScreen, HelpScreen
from specchat.tui.screens.statistics_screen import StatisticsScreen
from specchat.tui.screens.steps_screen import StepsScreen
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import FigureView, Panel

NO_STEPS_THERE = "{} wrote this answer: the steps are not known here, only its text and figures."
NO_STEPS = "This answer has no stored steps: only those of new answers are stored, up to 64 MiB."


@dataclass(frozen=True, slots=True)
class MessageActions:
    """Does what a `MessageView` asks for."""

    view: MainView
    state: ChatState
    context_actions: ContextActions

    def act_on_focused(self, what: str) -> None:
        """Run an action on the focused message, once the key for it is handled."""
        if isinstance(focused := self.view.app.focused, MessageView):
            self.view.app.call_later(self.act, what, focused)

    async def act(self, what: str, view: MessageView) -> None:
        """Run the action named `what` on a message; most are refused during an answer."""
        when_free = {"edit": self._edit, "regenerate": self._regenerate}
        at_once = {"copy": self.copy, "copy_code": self.copy_code, "steps": self.show_steps}
        when_idle: dict[str, Callable[[MessageView], Awaitable[None]]] = {
            "delete": self._delete,
            "pin": self._pin,
            "previous_branch": partial(self._turn, -1),
            "next_branch": partial(self._turn, 1),
        }
        if what in at_once:
            at_once[what](view)
        elif view.message_id not in self.state.conversations.tree:
            return  # an earlier key has deleted it
        elif what in when_free:
            if not self.state.answers.is_busy():
                await when_free[what](view)
        elif not self.state.answers.is_busy_here():
            await when_idle[what](view)

    def copy(self, view: MessageView) -> None:
        """Copy the text of a message."""
        self._copy(view.text, "message")

    def copy_code(self, view: MessageView) -> None:
        """Copy a code block; if there are several, ask which one."""
        blocks = code_blocks(view.text)
        if len(blocks) > 1:
            self.view.app.run_worker(self._choose_code(blocks))
        else:
            self._copy("".join(blocks), "code")

    def show_steps(self, view: MessageView) -> None:
        """Step through an answer."""
        known, answer = self.state.answers.steps_of(view.message_id), view.message_id
        if known is None or not any(step.tokens for step in known.steps):
            served = self.state.answers.served_by(view.message_id)
            self.view.notify(NO_STEPS_THERE.format(harmless(served)) if served else NO_STEPS)
            return

        def branch_off(begun: Sequence[Chunk] | None) -> None:
            if begun:
                self.view.app.run_worker(
                    self.state.questions.branch_off(answer, begun, known.target)
                )

        temperature = self.state.answers.asked_with(answer).get("temperature")
        self.view.app.push_screen(StepsScreen(known.steps, temperature), branch_off)

    def show_last_steps(self) -> None:
        """Step through the last answer."""
        if views := self._answers:
            self.show_steps(views[-1])
        else:
            self.view.notify("There is no answer to step through yet.")

    def show_statistics(self) -> None:
        """Show the statistics of the answers in the branch."""
        branch = self.state.conversations.branch
        if measured_answers(branch):
            self.view.app.push_screen(StatisticsScreen(branch))
        else:
            self.view.notify("No statistics yet: they come with the first answer.")

    def show_help(self) -> None:
        """Explain the figure under the cursor, or open the documentation if there is none."""
        if figure := self.view.app.query_one(Panel).under_cursor:
            figure.explain()
        else:
            self.view.app.push_screen(HelpScreen(self.state.key_of))

    def explain(self, asked: FigureView.Explain) -> None:
        """Show the glossary entry of a figure."""
        explanation = section("glossary", asked.figure, self.state.key_of)
        self.view.app.push_screen(ExplainScreen(asked.figure, asked.shown, explanation))

    def copy_last(self) -> None:
        """Copy the last answer."""
        self._copy(self._answers[-1].text if self._answers else "", "answer")

    @property
    def _answers(self) -> list[AnswerView]:
        return [each for each in self.view.transcript.views if isinstance(each, AnswerView)]

    def _copy(self, text: str, what: str) -> None:
        if text:
            self.view.app.copy_to_clipboard(text)
        else:
            self.view.notify(f"There is no {what} to copy.")

    async def _choose_code(self, blocks: list[str]) -> None:
        choices = [
            ListEntry(str(index), block.strip().partition("\n")[0], f"{block.count(chr(10))} lines")
            for index, block in enumerate(blocks)
        ]
        choices.append(ListEntry("all", "All", f"{len(blocks)} blocks"))
        chosen = await self.view.app.push_screen_wait(ChoiceScreen("Which code?", choices))
        if chosen:
            self._copy("\n".join(blocks) if chosen == "all" else blocks[int(chosen)], "code")

    async def _edit(self, view: MessageView) -> None:
        if isinstance(view, QuestionView):
            self.state.questions.editing = view.message_id
            self.view.rewrite(harmless(self.state.conversations.tree[view.message_id].text))
            self.view.composer.focus()
            self.view.show_state()

    async def _regenerate(self, view: MessageView) -> None:
        message = self.state.conversations.tree[view.message_id]
        question = message.id if message.role == "user" else message.parent
        if question is not None:
            await self.state.questions.answer_again(question)

    async def _pin(self, view: MessageView) -> None:
        self.context_actions.pin(view.message_id)

    async def _turn(self, step: int, view: MessageView) -> None:
        is_armed, version = view.is_armed, self.state.conversations.turn_to(view.message_id, step)
        if version is not None:
            self.state.answers.recall()
            await self.view.show_branch()
            await self.view.navigation.reveal(version, arms=is_armed)

    async def _delete(self, view: MessageView) -> None:
        self.view.app.run_worker(self._ask_to_delete(view))

    async def _ask_to_delete(self, view: MessageView) -> None:
        what = "question" if isinstance(view, QuestionView) else "answer"
        title = f"Delete this {what}, and all that follows it?"
        undo = f"{self.state.key_of('undo')} brings it back, for a day."
        is_wanted = await self.view.app.push_screen_wait(deletion(title, view.text, undo))
        if not is_wanted or self.state.answers.is_busy_here():
            return
        self.state.changes.delete(view.message_id)
        self.state.answers.recall()
        await self.view.show_branch()
        self.view.composer.focus()
        self.view.composer.leaves_undo = True
        self.view.notify(
            f"Deleted with all that followed. {self.state.key_of('undo')} restores it."
        )

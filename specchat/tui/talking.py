"""Asking, stopping, asking again, going on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual import on, work

from specchat import drafters
from specchat.chat.safe_text import harmless
from specchat.errors import SpecchatError
from specchat.tui.answering import Answering
from specchat.tui.mentions import completions, named_files
from specchat.tui.sampling_text import only_sampling
from specchat.tui.screens.dialogs import Choice, ChoiceScreen
from specchat.tui.state import State
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import AnswerView

__all__ = ["Talking"]

UNFINISHED = {"cancelled", "length", "failed", None}
COMPARED_TOKENS = 256
UNDRAFTED = (
    "Nothing was drafted in that answer: it was decoded plainly,"
    " so there is no speed-up to measure."
)


class Talking(State):
    """What makes answers come and end."""

    @on(Composer.Sent)
    async def _sent(self, event: Composer.Sent) -> None:
        """Ask a question, or another version of one."""
        composer = self.query_one(Composer)
        if self._answering is not None:
            composer.text = event.written
            self.notify("An answer is being written: Esc stops it.", severity="warning")
            return
        try:
            known = self._conversing.attachments(self._editing)
            named = named_files(event.written, Path.cwd(), known)
            question = self._conversing.ask(
                event.unfold(event.written), named.files, instead_of=self._editing
            )
        except SpecchatError as error:
            composer.text = event.written
            self.notify(str(error), severity="error")
            return
        for name in named.missing:
            self.notify(
                f"@{harmless(name)} names no file: sent as it is written.", severity="warning"
            )
        if self._editing is None:
            await self._transcript.add(self._view(question.id))
        else:
            self._editing = None
            await self._show_branch()
        await self._begin_answer(question.id)
        self._show_top()
        self._refresh_sidebar()

    async def _begin_answer(self, question: int) -> None:
        """Have a question answered by what is loaded, or will be."""
        message = self._conversing.answer(question)
        view = self._answer_view()
        view.message_id = message.id
        view.say_branch(*self._conversing.version(message.id))
        await self._transcript.add(view)
        self._ask(Answering(self._next_number(), message.id, view), question)

    def _ask(self, answering: Answering, leaf: int, **options: Any) -> None:
        """Send a question to the engine."""
        session = self._require_session()
        turns = self._conversing.turns(leaf)
        if answering.begun:
            turns.append({"role": "assistant", "content": answering.begun})
        self._answering = answering
        if not answering.is_comparison:
            self._figures.begin()
        preset = only_sampling(self._preset.sampling) if self._preset else {}
        chosen = {"make_room": True, **self._pair.options, **self._changed, **preset, **options}
        # drawing the question and decoding the answer would be in each other's way
        self.call_after_refresh(session.ask, answering.number, turns, chosen)

    def action_stop(self) -> None:
        """Stop the answer: at once where the pair is not loaded yet."""
        if self._answering is not None and self._session is not None:
            self._session.stop(self._answering.number)
            if not self._session.is_loaded:
                self._keep_answer("cancelled")
        elif self._editing is not None:
            self._editing = None
            self.query_one(Composer).text = ""

    async def action_regenerate(self) -> None:
        """Answer the last question once more."""
        branch = self._conversing.branch
        questions = [message for message in branch if message.role == "user"]
        if questions:
            await self._answer_again(questions[-1].id)
        else:
            self.notify("There is no question to answer again yet.")

    async def _answer_again(self, question: int) -> None:
        if self._is_busy():
            return
        self._conversing.leaf = question
        await self._show_branch()
        await self._begin_answer(question)

    async def action_go_on(self) -> None:
        """Continue an answer that was stopped."""
        branch = self._conversing.branch
        last = branch[-1] if branch else None
        if self._is_busy() or last is None or last.role != "assistant":
            return
        await self._transcript.show_end()
        view = self._transcript.views[-1]
        if last.finish not in UNFINISHED or not isinstance(view, AnswerView):
            self.notify("The last answer is complete.")
            return
        view.say("")
        answering = Answering(
            self._next_number(), last.id, view, begun=last.text, figures=last.statistics
        )
        self._ask(answering, last.parent or 0)

    def action_compare(self) -> None:
        """Decode the last answer again without speculation, for its speed."""
        branch = self._conversing.branch
        if not branch or branch[-1].role != "assistant":
            self.notify("There is no answer to compare with yet.")
            return
        if self._is_busy():
            return
        stats = branch[-1].statistics
        if stats.get("drafted") == 0:  # any difference would be chance
            self.notify(UNDRAFTED, timeout=15)
            return
        answering = Answering(self._next_number(), is_comparison=True)
        made = int(stats.get("generated_tokens", 0))
        tokens = min(max(made, 16), COMPARED_TOKENS)
        self._ask(answering, branch[-1].parent or 0, drafter=drafters.PLAIN, max_tokens=tokens)

    @on(Composer.Completing)
    @work
    async def _completing(self, event: Composer.Completing) -> None:
        """Complete a file's name, asking which where there are several."""
        names = completions(event.word, Path.cwd())
        chosen = names[0] if len(names) == 1 else None
        if len(names) > 1:
            choices = [Choice(name, name) for name in names]
            chosen = await self.push_screen_wait(ChoiceScreen("Files", choices))
        if chosen:
            self.query_one(Composer).complete_with(chosen)

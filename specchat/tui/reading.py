"""What is done with one message, and how messages are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from textual import on, work

from specchat.chat.safe_text import harmless
from specchat.tui.clipboard import copy_by_program
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, StepsScreen
from specchat.tui.screens.help_screen import HelpScreen
from specchat.tui.talking import Talking
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import Panel

__all__ = ["Reading"]


class Reading(Talking):
    """Commands for messages and for what is seen of them."""

    @on(MessageView.Asked)
    async def _asked(self, event: MessageView.Asked) -> None:
        """Do something with a message."""
        acts: dict[str, Callable[[MessageView], Any]] = {
            "copy": lambda view: self._copy(view.text, "message"),
            "copy_code": self._copy_code,
            "edit": self._edit,
            "regenerate": self._regenerate,
            "previous_branch": lambda view: self._turn(view, -1),
            "next_branch": lambda view: self._turn(view, 1),
            "delete": self._delete,
            "steps": self._show_steps,
        }
        result = acts[event.action](event.view)
        if isawaitable(result):
            await result

    @on(MessageView.Left)
    def _left(self, event: MessageView.Left) -> None:
        """Go to another message, or to the composer."""
        views = self._transcript.views
        place = views.index(event.view) + event.step
        if event.step == 0 or place >= len(views):
            self.query_one(Composer).focus()
            if event.step == 0 and self._answering is not None:
                self.action_stop()
        elif place >= 0:
            views[place].focus()

    @on(Panel.Left)
    def _left_panel(self) -> None:
        """Go back to the composer, stopping the answer as Esc does everywhere."""
        self.query_one(Composer).focus()
        if self._answering is not None:
            self.action_stop()

    @on(Composer.Paged)
    def _paged(self, event: Composer.Paged) -> None:
        """Read on while writing."""
        scroll = self._transcript.scroll_page_up, self._transcript.scroll_page_down
        scroll[event.step > 0](animate=False)

    @on(Composer.LeftUpwards)
    def _to_messages(self) -> None:
        """Choose the newest message."""
        if self._transcript.views:
            self._transcript.views[-1].focus()

    def _copy(self, text: str, what: str) -> None:
        if text:
            self.copy_to_clipboard(text)
        else:
            self.notify(f"There is no {what} to copy.")

    @work
    async def _copy_code(self, view: MessageView) -> None:
        """Copy a block of code, asking which where there are several."""
        blocks = view.code
        chosen: str | None = "0"
        if len(blocks) > 1:
            choices = [
                Choice(
                    str(place), block.strip().partition("\n")[0], f"{block.count(chr(10))} lines"
                )
                for place, block in enumerate(blocks)
            ]
            choices.append(Choice("all", "All of them", f"{len(blocks)} blocks"))
            chosen = await self.push_screen_wait(ChoiceScreen("Which code?", choices))
        if chosen == "all":
            self._copy("\n".join(blocks), "code")
        elif chosen:
            self._copy(blocks[int(chosen)] if blocks else "", "code")

    def copy_to_clipboard(self, text: str) -> None:
        """Copy by a program of the desktop, else through the terminal."""
        self._clipboard = text
        self._copy_out(text)

    @work
    async def _copy_out(self, text: str) -> None:
        """Copy without waiting for the program, and say how it was done."""
        program = await asyncio.to_thread(copy_by_program, text)
        if not program:
            super().copy_to_clipboard(text)
        how = f"with {program}" if program else "through the terminal, if it allows that (OSC 52)"
        self.notify(f"Copied {len(text)} characters {how}.")

    def _edit(self, view: MessageView) -> None:
        """Put a question into the composer, to be asked in another way."""
        if not isinstance(view, QuestionView) or self._is_busy():
            return
        self._editing = view.message_id
        composer = self.query_one(Composer)
        composer.text = harmless(view.text)
        composer.focus()
        composer.move_cursor(composer.document.end)
        self.notify("Enter asks this instead; Esc leaves it.")

    async def _regenerate(self, view: MessageView) -> None:
        if view.message_id is not None:
            message = self._conversing.tree[view.message_id]
            question = message.id if message.role == "user" else message.parent
            if question is not None:
                await self._answer_again(question)

    async def _turn(self, view: MessageView, step: int) -> None:
        """Read another version of a message."""
        if self._is_busy() or view.message_id is None:
            return
        version = self._conversing.turn_to(view.message_id, step)
        if version is not None:
            await self._show_branch()
            if shown := await self._transcript.reveal(version):
                shown.focus(scroll_visible=False)

    async def _delete(self, view: MessageView) -> None:
        if self._is_busy() or view.message_id is None:
            return
        self._conversing.delete(view.message_id)
        await self._show_branch()
        self.query_one(Composer).focus()
        self.notify("Deleted with what followed. The command Undo brings it back.")

    async def action_undo(self) -> None:
        """Bring back what was deleted last."""
        if self._is_busy():
            return
        before = self._conversing.conversation
        if not self._conversing.undo():
            self.notify("There is nothing to bring back.")
            return
        after = self._conversing.conversation
        is_same = (before and before.id) == (after and after.id)
        await (self._show_branch() if is_same else self._show_other())
        self._refresh_sidebar()

    def _show_steps(self, view: MessageView) -> None:
        if isinstance(view, AnswerView) and any(step.tokens for step in view.steps):
            self.push_screen(StepsScreen(view.steps))
        else:
            self.notify("Steps are there for answers of this session.")

    def action_help(self) -> None:
        """Explain keys and figures."""
        self.push_screen(HelpScreen())

    def action_statistics(self) -> None:
        """Show or hide the figures."""
        panel = self.query_one(Panel)
        self._panel_wanted = panel.display = not panel.display
        if panel.has_focus:
            self.query_one(Composer).focus()
        self._show_figures()
        self._show_top()

    def action_origins(self) -> None:
        """Colour tokens by where they came from, or show Markdown."""
        self._shows_origins = not self._shows_origins
        self._transcript.show_origins(self._shows_origins)
        self._show_legend()

    def action_steps(self) -> None:
        """Go through the last answer step by step."""
        views = [view for view in self._transcript.views if isinstance(view, AnswerView)]
        if views:
            self._show_steps(views[-1])
        else:
            self.notify("There is no answer to go through yet.")

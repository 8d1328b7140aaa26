"""The chat's state, and how it is shown."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from textual.app import App
from textual.widgets import Static

from specchat.chat.conversation import Message
from specchat.chat.store import Store
from specchat.tui.answering import Answering, Tempo
from specchat.tui.conversing import Conversing
from specchat.tui.figures import Figures, summary
from specchat.tui.session import Session
from specchat.tui.setup import Setup
from specchat.tui.sidebar import Sidebar
from specchat.tui.transcript import Transcript
from specchat.tui.typesetter import Typesetter
from specchat.tui.views import AnswerView, MessageView, QuestionView

__all__ = ["State"]


class State(App[None]):
    """What is being talked about and with what; the commands are in the classes that follow."""

    def __init__(self, setup: Setup) -> None:
        """Begin with an empty conversation."""
        super().__init__()
        self._setup = setup
        self._pair = setup.pair
        self._store = Store(setup.history)
        self._conversing = Conversing(self._store, setup.pair.name, setup.system_prompt)
        self._session: Session | None = None
        self._has_begun = False
        self._figures = Figures()
        self._answering: Answering | None = None
        self._last_number = 0
        self._editing: int | None = None
        self._capacity = 0
        self._panel_wanted = setup.shows_panel
        self._shows_origins = setup.shows_origins
        self._tempo = Tempo(os.cpu_count() or 1)
        self._typesetter = Typesetter(self.theme_variables)

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def _is_busy(self) -> bool:
        if self._answering is not None:
            self.notify("An answer is being written: Esc stops it.", severity="warning")
        return self._answering is not None

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def _show_branch(self) -> None:
        """Show the branch that is read."""
        branch = self._conversing.branch
        await self._transcript.show([partial(self._view_of, message) for message in branch])
        self._say_versions()
        self._show_top()

    def _view_of(self, message: Message) -> MessageView:
        if message.role == "user":
            question = QuestionView(self._typesetter, message.text)
            question.message_id = message.id
            return question
        view = self._answer_view()
        view.message_id = message.id
        thought = float(message.statistics.get("thought_s", 0.0))
        view.restore(message.text, message.pieces, thought)  # type: ignore[arg-type]
        view.say(summary(dict(message.statistics)))
        return view

    def _answer_view(self) -> AnswerView:
        return AnswerView(
            self._typesetter,
            shows_origins=self._shows_origins,
            folds=self._setup.folds_reasoning,
        )

    def _say_versions(self) -> None:
        for view in self._transcript.views:
            if isinstance(view, (AnswerView, QuestionView)) and view.message_id is not None:
                view.say_branch(*self._conversing.version(view.message_id))

    def _refresh_sidebar(self) -> None:
        sidebar = self.query_one(Sidebar)
        if sidebar.display:
            conversation = self._conversing.conversation
            current = conversation.id if conversation else None
            sidebar.fill(self._store.conversations(500), current)

    def _show_legend(self) -> None:
        self._say(
            "draft and suffix tokens are coloured and underlined; the target's own are plain"
            if self._shows_origins
            else ""
        )

    def notify(self, message: str, **how: Any) -> None:
        """Show a note as it is written: names of files and presets are no markup."""
        super().notify(message, **{**how, "markup": False})

    def _say(self, words: str) -> None:
        self.query_one("#status", Static).update(words)

    def _show_top(self) -> None:
        """Show what is being talked about, with what, and how full the context is."""

    def _start(self) -> None:
        """Load the pair, ending one that is loaded."""

    def _require_session(self) -> Session:
        """Return what is loaded, or being loaded."""
        raise NotImplementedError

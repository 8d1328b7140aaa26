"""The chat's state, and how it is shown."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from rich.text import Text
from textual.app import App
from textual.widgets import Static
from textual.worker import WorkerFailed

from specchat.chat.safe_text import harmless
from specchat.chat.store import Preset, Store
from specchat.decoding.chunk import Chunk
from specchat.drafters import origins
from specchat.errors import SpecchatError
from specchat.logs import log_failure
from specchat.tui.answering import Answering, Tempo
from specchat.tui.controllers.conversations import Conversing
from specchat.tui.controllers.session import Session
from specchat.tui.figures import Figures, summary
from specchat.tui.setup import Setup
from specchat.tui.widgets.attached_file import AttachedView
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.stop_button import StopSign
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.typesetter import Typesetter

__all__ = ["State"]

LOG = "chat.log"
Subject: TypeAlias = Literal["progress", "context", "engine"]
"""What the line above the composer may speak of."""

PRESSING: tuple[Subject, ...] = get_args(Subject)
PATIENCE = 0.05
"""Seconds for which the screen may stand still while another program writes to the store."""


class State(App[None]):
    """What is being talked about and with what; the commands are in the classes that follow."""

    def __init__(self, setup: Setup) -> None:
        """Begin with an empty conversation."""
        super().__init__()
        self.failure = ""
        """What ended the chat, in one line, where it did not end by itself."""
        self._setup = setup
        self._pair = setup.pair
        self._store = Store(setup.history, PATIENCE)
        self._conversing = Conversing(self._store, setup.pair.name, setup.system_prompt)
        self._session: Session | None = None
        self._has_begun = False
        self._figures = Figures()
        self._answer_now: Answering | None = None
        self._last_number = 0
        self._editing: int | None = None
        self._capacity = 0
        self._changed: dict[str, Any] = {}
        """Options of answers that were changed in this chat."""
        self._preset: Preset | None = None
        """What this conversation is asked with, on top of that."""
        self._said: dict[Subject, str] = {}
        self._panel_wanted = setup.shows_panel
        self._has_room: bool | None = None
        """Whether the screen is wide enough for the panel; None before it is seen."""
        self._shows_origins = setup.shows_origins
        self._tempo = Tempo()
        self._steps: dict[int, list[Chunk]] = {}
        """The steps of the newest answers, by message, for views that are made again."""
        self._typesetter = Typesetter(self.theme_variables)

    @property
    def _answering(self) -> Answering | None:
        """The answer that is being written, or None."""
        return self._answer_now

    @_answering.setter
    def _answering(self, answering: Answering | None) -> None:
        self._answer_now = answering
        for sign in self.query(StopSign):
            sign.show(is_writing=answering is not None)

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
        await self._transcript.show([message.id for message in branch])
        self._show_top()

    async def _show_other(self) -> None:
        """Show another conversation than before, of which there are no figures yet."""
        self._editing, self._figures = None, Figures()
        presets = {each.name: each for each in self._store.presets()}
        self._preset = presets.get(self._conversing.preset)
        self._say("", "context")
        self._show_figures()
        await self._show_branch()
        self.query_one(Composer).focus()

    def _view(self, number: int) -> MessageView:
        """Return a view of the message of that number."""
        message = self._conversing.tree[number]
        view: AnswerView | QuestionView
        if message.role == "user":
            files = [AttachedView(self._typesetter, each) for each in message.attachments]
            view = QuestionView(self._typesetter, message.text, files)
        else:
            view = self._answer_view()
            thought = float(message.statistics.get("thought_s", 0.0))
            view.steps = self._steps.get(number, [])
            view.restore(message.text, message.pieces, thought)
            view.say(summary(dict(message.statistics)))
        view.message_id = number
        view.say_branch(*self._conversing.version(number))
        return view

    def _answer_view(self) -> AnswerView:
        return AnswerView(
            self._typesetter,
            shows_origins=self._shows_origins,
            folds=self._setup.folds_reasoning,
        )

    def _refresh_sidebar(self) -> None:
        sidebar = self.query_one(Sidebar)
        if sidebar.display:
            conversation = self._conversing.conversation
            current = conversation.id if conversation else None
            sidebar.fill(self._store.conversations(500), current)

    def _show_legend(self) -> None:
        """Say what the colours mean while they are on, each in its own."""
        legend = self.query_one("#legend", Static)
        legend.display = self._shows_origins
        styles = self._typesetter
        legend.update(
            Text("  ").join(
                [
                    *(Text(each.label, styles.origin_style(each.name)) for each in origins()),
                    Text(" F4: Markdown", "dim"),
                ]
            )
        )

    def _show_figures(self) -> None:
        """Show the figures in the panel, or the most important ones above where it is hidden."""
        panel = self.query_one(Panel)
        panel.show(self._figures)
        if not panel.display:
            self._show_top()

    def notify(self, message: str, **how: Any) -> None:
        """Show a note as it is written: names of files and presets are no markup."""
        super().notify(message, **{**how, "markup": False})

    def _handle_exception(self, error: Exception) -> None:
        """End with the terminal as it was and one line: what is behind it is in the log.

        One of our own errors, raised where nobody waits for it, is told of, and nothing ends.
        """
        error = error.error if isinstance(error, WorkerFailed) else error  # type: ignore[assignment]
        if isinstance(error, SpecchatError):
            self.notify(str(error), severity="error", timeout=15)
            return
        self._return_code = 1
        if self._exception is None:  # the first is the cause, and what tests raise again
            self._exception = error
            self._exception_event.set()
            log = log_failure(LOG, error)
            what = harmless(f"{type(error).__name__}: {error}".splitlines()[0])
            self.failure = f"the chat failed ({what}); {log} has the details"
        self._close_messages_no_wait()

    def _say(self, words: str, about: Subject = "engine") -> None:
        """Say something above the composer; of several things the most pressing is shown."""
        self._said[about] = words
        said = harmless(next((each for each in map(self._said.get, PRESSING) if each), ""))
        status = self.query_one("#status", Static)
        if status.content != said:
            status.update(said)

    def _show_top(self) -> None:
        """Show what is being talked about, with what, and how full the context is."""

    def _keep_answer(self, finish: str, reason: str = "") -> None:
        """Keep what an answer has come to, and say how it went."""

    def _start(self) -> None:
        """Load the pair, ending one that is loaded."""

    def _require_session(self) -> Session:
        """Return what is loaded, or being loaded."""
        raise NotImplementedError

"""The main screen: carries out what controllers and actions request, with the right widget."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.geometry import Size
from textual.notifications import Notification
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from specchat.chat.conversation import Message
from specchat.errors import StoreFailed
from specchat.safe_text import harmless
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.appearance import Appearance
from specchat.tui.arrangement import Arrangement
from specchat.tui.attached_images import attached_text
from specchat.tui.chat_header import header
from specchat.tui.composer_frame import frame_subtitle, frame_title
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.controllers.chat_view import PRESSING, Subject
from specchat.tui.navigation import Navigation
from specchat.tui.setup import Setup
from specchat.tui.texts.figures import Figures, stored_figures
from specchat.tui.widgets.click_line import ClickLine
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import attached_view
from specchat.tui.widgets.message_views import (
    SUMMARY_NOTE,
    AnswerView,
    MessageView,
    QuestionView,
)
from specchat.tui.widgets.notice_line import NoticeLine
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from specchat.tui.screens.model_screen import ModelScreen

NUM_LISTED = 500


class MainView:
    """The `ChatView` of the real screen; it displays state, and changes only its own.

    `app` provides what Textual has: widgets, screens over the chat, timers, workers, themes.
    `navigation` moves the focus and what lies over the chat, `appearance` has colours.
    """

    state: ChatState
    """The state to show; set by the app later, because its controllers need this view."""

    def __init__(self, app: App[None], setup: Setup) -> None:
        self.app = app
        self.arrangement = Arrangement(app, wants_panel=setup.screen.statistics)
        self.navigation = Navigation(app, self, self.arrangement)
        self.appearance = Appearance(app, setup, self._figures)
        self.is_behind = False
        """Whether the reader has scrolled away from the newest message."""
        self._followed: int | None = None
        """The answer whose figures are shown; None for the newest."""
        self._has_older: bool | None = None
        """Whether there are stored conversations; None until that is looked up."""
        self._status: dict[Subject, str] = {}
        self._ended_by_key = ""
        """What the footer says that the key of "stop" ends."""
        self._setup = setup

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self.app.query_one(Transcript)

    @property
    def composer(self) -> Composer:
        """The text area in which the user writes."""
        return self.app.query_one(Composer)

    @property
    def _sidebar(self) -> Sidebar:
        return self.app.query_one(Sidebar)

    # --- for controllers (`ChatView`) ---

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice."""
        self.app.notify(message, **how)

    def report(self, reason: object) -> None:
        """Show a notice about an error."""
        self.app.notify(str(reason), severity="error")

    def say(self, words: str, about: Subject = "engine") -> None:
        """Set the status text of a subject; empty clears it."""
        self._status[about] = words
        line = self.app.query_one_optional("#status", Static)
        shown = harmless(next(filter(None, map(self._status.get, PRESSING)), ""))
        if line is not None and line.content != shown:
            line.update(shown)
            self.arrangement.place_status(line)

    def show_state(self) -> None:
        """Update everything that depends on the controllers: figures, stop button, top line."""
        panel = self.app.query_one_optional(Panel)
        if panel is None:  # the chat is closing
            return
        self.state.unsent.changed()
        self.state.message_size.follow()
        self._show_start()
        figures = self._figures()
        is_newest = figures is self.state.answers.figures
        advice = self.state.adviser.words() if is_newest else ""
        panel.show(figures, self.state.pair_controller.facts, advice)
        self.app.query_one(Strip).show(figures, advice)
        self.show_frame()
        self.show_hint()
        self.appearance.show_legend()
        top = self.app.query_one("#header", Static)
        is_saved = self._setup.history is not None
        width = self.arrangement.size.width - top.gutter.width
        top.update(header(self.state, width, is_saved=is_saved), layout=False)

    def show_frame(self) -> None:
        """Update what the composer's frame says."""
        key_of, composer = self._setup.key_of, self.app.query_one_optional(Composer)
        if composer is None:  # the chat is closing
            return
        if self._ended_by_key != (ends := self.state.questions.ends):
            self._ended_by_key = ends
            self.app.refresh_bindings()
        composer.border_title = frame_title(self.state, key_of)
        composer.border_subtitle = frame_subtitle(
            self.state, key_of, is_behind=self.is_behind, is_empty=not composer.text
        )
        facts, line = self.state.pair_controller.facts, self.app.query_one("#attached", Static)
        attached = attached_text(self.state.message_size.images, facts)
        if line.content != attached:
            line.update(attached)
            line.display = bool(attached.plain)

    def show_notice(self, notice: Notification | None) -> None:
        """Show a notice on the main screen; None removes it. A dialog over it has its own."""
        if line := self.app.query_one_optional(NoticeLine):
            line.show(None if isinstance(self.app.screen, ModalScreen) else notice)

    def show_conversations(self) -> None:
        """Update the list of conversations, if it is open."""
        if self._sidebar.display:
            conversations = self.state.conversations
            listed = conversations.store.conversations(NUM_LISTED)
            self._sidebar.fill(listed, conversations.number)

    def show_pull(self, name: str) -> None:
        """Update the display of a download."""
        screen, pull = self.model_screen, self.state.pulls.latest[name]
        if screen is not None:
            if pull.stage != "running" and screen.is_mounted:
                screen.find_again()
            screen.show_pull(name)
        elif pull.stage == "failed":
            self.notify(pull.words, title=f"{name} was not pulled", severity="error")
        self.show_state()

    def put_back(self, text: str) -> None:
        """Put a text that was refused into the composer, above what has been typed since."""
        self.composer.put_above(text)

    def rewrite(self, text: str) -> None:
        """Replace the text in the composer; undo restores it."""
        self.composer.rewrite(text)

    async def show_branch(self) -> None:
        """Show the current branch of the conversation."""
        self._has_older = None
        self._show_start()
        answers = self.state.answers
        answers.show_in(None)
        await self.transcript.show([message.id for message in self.state.conversations.branch])
        writing = answers.here
        if writing is not None and writing.message is not None:
            view = self.transcript.view_of(writing.message)
            answers.show_in(view if isinstance(view, AnswerView) else None)
        self.show_state()

    async def add(self, message: int) -> AnswerView | None:
        """Add a message at the end; return the view of an answer."""
        self._show_start()
        for last in self.transcript.views[-1:]:
            if isinstance(last, AnswerView):
                last.follow_up()
        await self.transcript.add(self.message_view(message))
        return await self.last_answer()

    async def last_answer(self) -> AnswerView | None:
        """Return the view of the last message; None if it is a question."""
        await self.transcript.show_end()
        view = self.transcript.views[-1]
        return view if isinstance(view, AnswerView) else None

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function after some seconds; the app reports its errors."""
        self.app.set_timer(seconds, lambda: self.app.call_later(act))

    # --- for actions ---

    @property
    def model_screen(self) -> "ModelScreen | None":
        """The models screen, while it is open."""
        from specchat.tui.screens.model_screen import ModelScreen

        return next((s for s in self.app.screen_stack if isinstance(s, ModelScreen)), None)

    def show_hint(self) -> None:
        """Update the lines above the composer; the offer of a race hides other offers for now."""
        offer = self.state.race_offer.words()
        hint = self.state.hint.news() if offer else self.state.hint.words()
        for name, words in (("#offer", harmless(offer)), ("#hint", harmless(hint))):
            line = self.app.query_one_optional(name, ClickLine)
            if line is not None and line.content != words:
                line.update(words)
                line.display = bool(words)

    # --- for the app ---

    def start(self) -> None:
        """Show the empty chat according to the settings."""
        screen = self._setup.screen
        self.appearance.choose_theme(screen.theme)
        if not screen.animations:
            self.app.animation_level = "none"
        self.appearance.restyle()
        self._sidebar.display = screen.conversations
        self.show_conversations()
        self.composer.focus()
        self.fit(self.app.size)
        self.show_state()

    def fit(self, size: Size) -> None:
        """Adapt the layout to the terminal's size."""
        self.arrangement.fit(size)
        self.show_state()

    def want_panel(self, *, wants: bool) -> None:
        """Show the stats panel beside the chat where there is room, or never there."""
        self.arrangement.wants_panel = wants
        self.arrangement.place()
        self.show_state()

    def follow(self, focused: Widget | None) -> None:
        """Show the figures of the focused answer, or of the newest one if none has the focus."""
        if isinstance(focused, MessageView | Composer):  # the panel's own focus changes nothing
            followed = focused.message_id if isinstance(focused, AnswerView) else None
            if followed != self._followed:
                self._followed = followed
                self.show_state()

    def message_view(self, number: int) -> MessageView:
        """Return a view of a message."""
        message = self.state.conversations.tree[number]
        if message.role == "user":
            files = [
                *self._image_views(message),
                *(attached_view(each) for each in message.attachments),
            ]
            text = SUMMARY_NOTE if message.mark == "summary" else message.text
            view: MessageView = QuestionView(text, files)
        else:
            view = self._answer_view(message)
        view.message_id = number
        view.say_branch(*self.state.conversations.tree.version(number))
        view.say_mark(message.mark)
        return view

    def _image_views(self, message: Message) -> Sequence[Widget]:
        """Return views of a question's images."""
        if not message.images:
            return ()
        from specchat.tui.widgets.image_view import image_view
        from specchat.tui.widgets.shown_picture import way_of

        chosen, has_colours = self._setup.screen.pictures, self.appearance.has_colours()
        way = way_of(chosen, os.environ, has_colours=has_colours)
        return [image_view(each, way) for each in message.images]

    def _figures(self) -> Figures:
        """Return the figures to show: those of the focused answer, or of the newest one."""
        older = self.state.conversations.branch[:-1]
        followed = [message for message in older if message.id == self._followed]
        return stored_figures(followed) or self.state.answers.figures

    def _show_start(self) -> None:
        """Show the conversation, or the start screen while it is empty."""
        welcome, controller = self.app.query_one(Welcome), self.state.pair_controller
        welcome.display = not self.state.conversations.branch
        self.transcript.display = not welcome.display
        self.arrangement.place()
        if welcome.display:
            if self._has_older is None:
                self._has_older = self._has_conversations()
            chats = self._setup.key_of("conversations") if self._has_older else ""
            welcome.show(controller.pair, controller.facts, controller.state, chats)

    def _has_conversations(self) -> bool:
        with suppress(StoreFailed):  # it may be in use
            return bool(self.state.conversations.store.conversations(1))
        return False

    def _answer_view(self, message: Message) -> MessageView:
        view = self.appearance.answer_view()
        answers = self.state.answers
        parts, writing = AnswerParts.of(message), answers.current
        is_written = writing is None or writing.message != message.id
        if is_written and (not parts.is_empty or message.finish):
            # Textual misplaces a widget that requests a layout before it is mounted and then grows
            view.show(parts)
            view.say(*answers.line_below(message.finish, message.statistics))
        if message is not self.state.conversations.last:
            view.follow_up()
        return view

"""The main screen as the controllers see it: what is shown in which widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual.widget import Widget
from textual.widgets import Static

from specchat.chat.conversation import Message
from specchat.chat.safe_text import harmless
from specchat.drafter_registry import origins
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.controllers.chat_view import PRESSING, Subject
from specchat.tui.figures import lines_below, stored_figures
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.top_line import composer_title, stop_button, top_line
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import attached_view
from specchat.tui.widgets.message_views import AnswerView, MessageView, QuestionView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.typesetter import Typesetter, colours_of, readable_theme
from specchat.tui.widgets.welcome import Welcome

if TYPE_CHECKING:
    from specchat.tui.app import ChatApp

SIDEBAR_WIDTH, PANEL_WIDTH, NARROWEST = 80, 100, 60
"""Columns below which the sidebar covers the chat, the panel is hidden, and it covers the chat."""
NUM_LISTED = 500


@dataclass(frozen=True, slots=True)
class Actions:
    """A group of commands, which act on the chat's controllers and this view."""

    app: ChatApp


class MainView:
    """The `ChatView` of the real screen; it shows state and changes none but its own."""

    def __init__(self, app: ChatApp) -> None:
        self.shows_origins = app.setup.screen.colour_tokens
        self.wants_panel = app.setup.screen.statistics
        self._has_room: bool | None = None
        """Whether the screen is wide enough for the panel; None before its size is known."""
        self._shows_panel = False
        """Whether the panel is on the screen, or comes back when the list is closed."""
        self._followed: int | None = None
        """The answer whose figures are shown, None for the newest."""
        self._status: dict[Subject, str] = {}
        self._app = app
        self._with_keys = app.setup.with_keys
        self._typesetter = Typesetter(app.theme_variables)

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self._app.query_one(Transcript)

    @property
    def composer(self) -> Composer:
        """Where the user writes."""
        return self._app.query_one(Composer)

    @property
    def model_screen(self) -> ModelScreen | None:
        """The model screen, while it is open."""
        return next((s for s in self._app.screen_stack if isinstance(s, ModelScreen)), None)

    # --- what controllers ask for ---

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice."""
        self._app.notify(message, **how)

    def report(self, reason: object) -> None:
        """Show a notice about an error."""
        self._app.notify(str(reason), severity="error", timeout=15)

    def say(self, words: str, about: Subject = "engine") -> None:
        """Set what the status line says about a subject; empty clears it."""
        self._status[about] = words
        line = self._app.query_one_optional("#status", Static)
        pressing = next(filter(None, map(self._status.get, PRESSING)), "")
        shown = self._with_keys(harmless(pressing))
        if line is not None and line.content != shown:
            line.update(shown)

    def show_state(self) -> None:
        """Update what depends on the controllers' state: figures, stop button, top line."""
        panel = self._app.query_one_optional(Panel)
        if panel is None:  # the chat is closing
            return
        self._show_start()
        answers, older = self._app.answers, self._app.conversations.branch[:-1]
        followed = [message for message in older if message.id == self._followed]
        figures = stored_figures(followed) or answers.figures
        advice = self._app.adviser.words() if figures is answers.figures else ""
        panel.show(figures, self._app.pair_controller.facts, advice)
        self.composer.border_title = composer_title(answers)
        self._app.query_one("#stop", Static).update(stop_button(self._app), layout=False)
        width = self._app.size.width if self._has_room else 0
        short = "" if panel.display else figures.in_short()
        top = top_line(self._app, short, width)
        self._app.query_one("#top", Static).update(top, layout=False)

    def follow(self, focused: Widget | None) -> None:
        """Show the figures of the answer that has the focus, and of the newest one otherwise."""
        if isinstance(focused, MessageView | Composer):  # the panel's own focus changes nothing
            followed = focused.message_id if isinstance(focused, AnswerView) else None
            if followed != self._followed:
                self._followed = followed
                self.show_state()

    def _show_start(self) -> None:
        """Show the conversation, or the start screen while it is empty."""
        welcome, controller = self._app.query_one(Welcome), self._app.pair_controller
        welcome.display = not self._app.conversations.branch
        self.transcript.display = not welcome.display
        if welcome.display:
            welcome.show(controller.pair.name, controller.facts)

    def show_conversations(self) -> None:
        """Update the list of conversations, if it is open."""
        sidebar = self._app.query_one(Sidebar)
        if sidebar.display:
            conversations = self._app.conversations
            sidebar.fill(conversations.store.conversations(NUM_LISTED), conversations.number)

    def show_pull(self, name: str) -> None:
        """Update what is shown of a download."""
        screen, state = self.model_screen, self._app.pulls.latest[name]
        if screen is not None:
            if state.stage != "running" and screen.is_mounted:
                screen.find_again()
            screen.show_pull(name)
        elif state.stage == "failed":
            self.notify(state.words, title=f"{name} was not pulled", severity="error")
        self.show_state()
        self.show_hint()

    def put_back(self, text: str) -> None:
        """Put a text into the composer, the cursor at its end."""
        composer = self.composer
        composer.text = text
        composer.move_cursor(composer.document.end)

    async def show_branch(self) -> None:
        """Show the current branch of the conversation."""
        self._show_start()
        await self.transcript.show([message.id for message in self._app.conversations.branch])
        self.show_state()

    async def add(self, message: int) -> AnswerView | None:
        """Add a message at the end; return the view of an answer."""
        self._show_start()
        await self.transcript.add(self.message_view(message))
        return await self.last_answer()

    async def last_answer(self) -> AnswerView | None:
        """Return the answer at the end; None if the last message is a question."""
        await self.transcript.show_end()
        view = self.transcript.views[-1]
        return view if isinstance(view, AnswerView) else None

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Call a function after some seconds; the app shows its errors."""
        self._app.set_timer(seconds, lambda: self._app.call_later(act))

    # --- what the app asks for ---

    def start(self) -> None:
        """Show the empty chat as the settings say."""
        screen = self._app.setup.screen
        self._choose_theme(screen.theme)
        if not screen.animations:
            self._app.animation_level = "none"
        self.restyle()
        self._app.query_one(Sidebar).display = screen.conversations
        self.composer.focus()
        self.place(self._app.size.width)
        self.show_state()
        self.show_hint()

    def show_hint(self) -> None:
        """Update the line above the composer."""
        if line := self._app.query_one_optional("#hint", Static):
            words = self._with_keys(harmless(self._app.hint.words()))
            line.update(words)
            line.display = bool(words)

    def message_view(self, number: int) -> MessageView:
        """Return a view of a message."""
        message = self._app.conversations.tree[number]
        if message.role == "user":
            files = [attached_view(each) for each in message.attachments]
            view: MessageView = QuestionView(message.text, files)
        else:
            view = self._answer_view(message)
        view.message_id = number
        view.say_branch(*self._app.conversations.version(number))
        return view

    async def reveal(self, message: int | None, *, unfolds: bool = False) -> None:
        """Scroll to a message and focus it; its reasoning and files may be unfolded."""
        view = await self.transcript.reveal(message) if message is not None else None
        if view is not None:
            view.focus(scroll_visible=False)
            if unfolds:
                view.unfold()

    def restyle(self) -> None:
        """Follow the theme."""
        colours, is_dark = self._app.theme_variables, self._app.current_theme.dark
        has_colours = colours_of(self._app) not in {None, "standard"}
        self._typesetter = Typesetter(colours, is_dark=is_dark, has_colours=has_colours)
        for view in self.transcript.views:
            view.restyle(self._typesetter)
        labels = [Text(each.label, self._typesetter.origin_style(each.name)) for each in origins()]
        legend = self._app.query_one("#legend", Static)
        legend.update(Text("  ").join([*labels, Text(self._with_keys(" F4 hides"), "dim")]))
        legend.display = self.shows_origins

    def place(self, width: int) -> None:
        """Leave room for the conversation on narrow terminals."""
        self._app.query_one(Sidebar).set_class(width < SIDEBAR_WIDTH, "-over")
        self._app.query_one(Panel).set_class(width < NARROWEST, "-over")
        has_room = width >= PANEL_WIDTH
        if has_room != self._has_room:
            self._has_room = has_room
            self._shows_panel = self.wants_panel and has_room
            self._arrange()
        self.show_state()

    def toggle_panel(self) -> None:
        """Show or hide the stats panel; on a narrow screen it takes the list's place."""
        panel, sidebar = self._app.query_one(Panel), self._app.query_one(Sidebar)
        self.wants_panel = self._shows_panel = not panel.display
        if self._shows_panel and not self._has_room:
            sidebar.display = False
        if panel.has_focus or (sidebar.has_focus_within and not sidebar.display):
            self.composer.focus()
        self._arrange()
        self.show_state()
        if panel.display and panel.has_class("-over"):
            panel.focus()

    def _arrange(self) -> None:
        """Show the panel where it is wanted, and on a narrow screen only without the list."""
        is_in_the_way = not self._has_room and self._app.query_one(Sidebar).display
        self._app.query_one(Panel).display = self._shows_panel and not is_in_the_way

    def toggle_origins(self) -> None:
        """Tint tokens by where they came from, or do not."""
        self.shows_origins = not self.shows_origins
        for view in self.transcript.query(AnswerView):
            view.show_origins(self.shows_origins)
        self._app.query_one("#legend").display = self.shows_origins

    def toggle_conversations(self) -> None:
        """Show or hide the list of conversations."""
        sidebar = self._app.query_one(Sidebar)
        sidebar.display = not sidebar.display
        self._arrange()
        self.show_state()
        self.show_conversations()
        (sidebar if sidebar.display else self.composer).focus()

    def uncover(self) -> None:
        """Hide the list of conversations, or the panel, where it covers the conversation."""
        for each in self._app.query("#middle > .-over"):
            if each.display:
                (self.toggle_panel if isinstance(each, Panel) else self.toggle_conversations)()

    def _choose_theme(self, wanted: str | None) -> None:
        if wanted in self._app.available_themes:
            colours = colours_of(self._app)
            is_picture = self._app.is_headless and colours is not None
            theme = self._app.available_themes[wanted]
            self._app.theme = readable_theme(theme, "truecolor" if is_picture else colours)
        elif wanted:
            self.notify(f"Unknown theme {wanted}. Ctrl+P, Theme lists all.")

    def _answer_view(self, message: Message) -> MessageView:
        folds = self._app.setup.screen.fold_reasoning
        view = AnswerView(self._typesetter, shows_origins=self.shows_origins, folds=folds)
        view.with_keys = self._with_keys
        parts, writing = AnswerParts.of(message), self._app.answers.current
        is_written = writing is None or writing.message != message.id
        if is_written and (not parts.is_empty or message.finish):
            # Textual lays a widget out wrongly that asks for it before it is mounted and then grows
            view.show(parts)
            has_older = self._app.conversations.has_older
            view.say(*lines_below(message.finish, message.statistics, has_older=has_older))
        return view

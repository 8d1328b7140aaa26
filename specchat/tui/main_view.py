"""The main screen: carries out what controllers and actions request, with the right widget."""

from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from rich.text import Text
from textual.app import App
from textual.geometry import Size
from textual.notifications import Notification
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from specchat.chat.conversation import Message
from specchat.drafter_registry import origins
from specchat.safe_text import harmless
from specchat.tui.answer_parts import AnswerParts
from specchat.tui.arrangement import Arrangement
from specchat.tui.chat_header import header
from specchat.tui.composer_frame import frame_subtitle, frame_title
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.controllers.chat_view import PRESSING, Subject
from specchat.tui.figures import Figures, stored_figures
from specchat.tui.markdown.typesetter import Typesetter, colours_of, readable_theme
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Setup
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.fold import attached_view
from specchat.tui.widgets.message_views import (
    SUMMARY_NOTE,
    AnswerView,
    MessageView,
    QuestionView,
)
from specchat.tui.widgets.notice_line import NoticeLine
from specchat.tui.widgets.panel import FigureView, Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

NUM_LISTED = 500

Result = TypeVar("Result")


class MainView:
    """The `ChatView` of the real screen; it displays state, and changes only its own.

    `app` provides what Textual has: widgets, screens over the chat, timers, workers, themes.
    """

    state: ChatState
    """The state to show; set by the app later, because its controllers need this view."""

    def __init__(self, app: App[None], setup: Setup) -> None:
        self.shows_origins = setup.screen.colour_tokens
        self.arrangement = Arrangement(app, wants_panel=setup.screen.statistics)
        self.is_behind = False
        """Whether the reader has scrolled away from the newest message."""
        self._followed: int | None = None
        """The answer whose figures are shown; None for the newest."""
        self._status: dict[Subject, str] = {}
        self._app = app
        self._setup = setup
        self._typesetter = Typesetter(app.theme_variables)

    @property
    def transcript(self) -> Transcript:
        """The messages."""
        return self._app.query_one(Transcript)

    @property
    def composer(self) -> Composer:
        """The text area in which the user writes."""
        return self._app.query_one(Composer)

    @property
    def _sidebar(self) -> Sidebar:
        return self._app.query_one(Sidebar)

    @property
    def _panel(self) -> Panel:
        return self._app.query_one(Panel)

    # --- for controllers (`ChatView`) ---

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice."""
        self._app.notify(message, **how)

    def report(self, reason: object) -> None:
        """Show a notice about an error."""
        self._app.notify(str(reason), severity="error", timeout=15)

    def say(self, words: str, about: Subject = "engine") -> None:
        """Set the status text of a subject; empty clears it."""
        self._status[about] = words
        line = self._app.query_one_optional("#status", Static)
        shown = harmless(next(filter(None, map(self._status.get, PRESSING)), ""))
        if line is not None and line.content != shown:
            line.update(shown)
            self.arrangement.place_status(line)

    def show_state(self) -> None:
        """Update everything that depends on the controllers: figures, stop button, top line."""
        panel = self._app.query_one_optional(Panel)
        if panel is None:  # the chat is closing
            return
        self._show_start()
        figures = self._figures()
        is_newest = figures is self.state.answers.figures
        advice = self.state.adviser.words() if is_newest else ""
        panel.show(figures, self.state.pair_controller.facts, advice)
        self._app.query_one(Strip).show(figures, advice)
        self.show_frame()
        self._show_legend()
        top = self._app.query_one("#header", Static)
        is_saved = self._setup.history is not None
        width = self.arrangement.size.width - top.gutter.width
        top.update(header(self.state, width, is_saved=is_saved), layout=False)

    def show_frame(self) -> None:
        """Update what the composer's frame says."""
        key_of, composer = self._setup.key_of, self._app.query_one_optional(Composer)
        if composer is None:  # the chat is closing
            return
        composer.border_title = frame_title(self.state, key_of)
        composer.border_subtitle = frame_subtitle(self.state, key_of, is_behind=self.is_behind)

    def show_notice(self, notice: Notification | None) -> None:
        """Show a notice on the main screen; None removes it."""
        if line := self._app.query_one_optional(NoticeLine):
            line.show(notice)

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
        self.show_hint()

    def put_back(self, text: str) -> None:
        """Put a text into the composer, with the cursor at its end."""
        composer = self.composer
        composer.text = text
        composer.move_cursor(composer.document.end)

    async def show_branch(self) -> None:
        """Show the current branch of the conversation."""
        self._show_start()
        await self.transcript.show([message.id for message in self.state.conversations.branch])
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
        self._app.set_timer(seconds, lambda: self._app.call_later(act))

    # --- for actions ---

    def run(
        self, work: Coroutine[Any, Any, None], group: str = "default", *, exclusive: bool = False
    ) -> None:
        """Run a coroutine as a worker; the app reports its errors."""
        self._app.run_worker(work, group=group, exclusive=exclusive)

    def open(
        self, screen: Screen[Result], then: Callable[[Result | None], None] | None = None
    ) -> None:
        """Open a screen over the chat; `then` gets its result."""
        self._app.push_screen(screen, then)

    async def ask(self, screen: Screen[Result]) -> Result | None:
        """Open a screen and return its result; only in a worker (`run`)."""
        return await self._app.push_screen_wait(screen)

    def suspended(self) -> AbstractContextManager[None]:
        """Give the terminal to another program; nothing may be raised meanwhile."""
        return self._app.suspend()

    def rewrite(self, text: str) -> None:
        """Replace the text in the composer, with the cursor at its end; undo restores it."""
        composer = self.composer
        composer.replace(text, (0, 0), composer.document.end)
        composer.move_cursor(composer.document.end)
        composer.focus()

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard."""
        self._app.copy_to_clipboard(text)

    @property
    def model_screen(self) -> ModelScreen | None:
        """The models screen, while it is open."""
        return next((s for s in self._app.screen_stack if isinstance(s, ModelScreen)), None)

    @property
    def figure_under_cursor(self) -> FigureView | None:
        """The figure under the mouse, or else under the focused panel's cursor."""
        return self._panel.under_cursor

    @property
    def themes(self) -> list[str]:
        """The names of all themes."""
        return sorted(self._app.available_themes)

    @property
    def theme(self) -> str:
        """The name of the theme in use."""
        return self._app.theme

    def use_theme(self, name: str) -> None:
        """Switch to a theme."""
        self._app.theme = name

    def show_hint(self) -> None:
        """Update the line above the composer."""
        if line := self._app.query_one_optional("#hint", Static):
            words = harmless(self.state.hint.words())
            line.update(words)
            line.display = bool(words)

    async def reveal(
        self, message: int | None, *, unfolds: bool = False, arms: bool = False
    ) -> None:
        """Scroll to a message and focus it; its reasoning and files may be unfolded."""
        view = await self.transcript.reveal(message) if message is not None else None
        if view is not None:
            view.focus(scroll_visible=False)
            view.is_armed = arms
            if unfolds:
                view.unfold()

    def toggle_panel(self) -> None:
        """Show or hide the stats panel; over the chat it replaces the list of conversations."""
        panel, sidebar = self._panel, self._sidebar
        self.arrangement.toggle_panel()
        if panel.has_focus or (sidebar.has_focus_within and not sidebar.display):
            self.composer.focus()
        self.show_state()
        if panel.display and panel.has_class("-over"):
            panel.focus()

    def toggle_origins(self) -> None:
        """Turn the tinting of tokens by origin on or off."""
        self.shows_origins = not self.shows_origins
        for view in self.transcript.query(AnswerView):
            view.show_origins(self.shows_origins)
        self._show_legend()

    def toggle_conversations(self) -> None:
        """Show or hide the list of conversations."""
        sidebar = self._sidebar
        self.arrangement.toggle_list()
        self.show_state()
        self.show_conversations()
        (sidebar if sidebar.display else self.composer).focus()

    def scroll_page(self, step: int) -> None:
        """Scroll the conversation by a page, up (-1) or down (1)."""
        scroll = self.transcript.scroll_page_up, self.transcript.scroll_page_down
        scroll[step > 0](animate=False)

    def step_focus(self, step: int) -> None:
        """Move the focus by a number of messages; the composer comes after the last one."""
        views: list[Widget] = [*self.transcript.views]
        stops = [*(views or self._app.query("Welcome > OptionList")), self.composer]
        if self._app.focused in stops:
            stop = stops[max(0, stops.index(self._app.focused) + step)]
            stop.arm() if isinstance(stop, MessageView) else stop.focus()

    def focus_for_typing(self) -> None:
        """Focus the composer for a text that nothing else takes, as after a click or a search."""
        app = self._app
        if not app.screen_stack or isinstance(app.screen, ModalScreen):
            return
        focused = app.focused
        is_free = focused is None or (isinstance(focused, MessageView) and not focused.is_armed)
        composer = app.screen.query_one_optional(Composer)  # none before the first screen
        if is_free and composer is not None:
            app.screen.set_focus(composer)

    def uncover(self) -> None:
        """Hide the list of conversations or the panel if it covers the conversation."""
        for each in self._app.query("#middle > .-over"):
            if each.display:
                (self.toggle_panel if isinstance(each, Panel) else self.toggle_conversations)()

    # --- for the app ---

    def start(self) -> None:
        """Show the empty chat according to the settings."""
        screen = self._setup.screen
        self._choose_theme(screen.theme)
        if not screen.animations:
            self._app.animation_level = "none"
        self.restyle()
        self._sidebar.display = screen.conversations
        self.composer.focus()
        self.fit(self._app.size)
        self.show_state()
        self.show_hint()

    def fit(self, size: Size) -> None:
        """Adapt the layout to the terminal's size."""
        self.arrangement.fit(size)
        self.show_state()

    def want_panel(self, *, wants: bool) -> None:
        """Show the stats panel beside the chat where there is room, or never there."""
        self.arrangement.wants_panel = wants
        self.arrangement.place()
        self.show_state()

    def restyle(self) -> None:
        """Follow the theme."""
        colours, is_dark = self._app.theme_variables, self._app.current_theme.dark
        has_colours = colours_of(self._app) not in {None, "standard"}
        self._typesetter = Typesetter(colours, is_dark=is_dark, has_colours=has_colours)
        for view in self.transcript.views:
            view.restyle(self._typesetter)
        self._show_legend()

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
            files = [attached_view(each) for each in message.attachments]
            text = SUMMARY_NOTE if message.mark == "summary" else message.text
            view: MessageView = QuestionView(text, files)
        else:
            view = self._answer_view(message)
        view.message_id = number
        view.say_branch(*self.state.conversations.version(number))
        view.say_mark(message.mark)
        return view

    def _show_legend(self) -> None:
        """Name the colours of the origins that the answer with the shown figures has, or of all."""
        legend = self._app.query_one("#legend", Static)
        legend.display = self.shows_origins
        if not self.shows_origins:
            return
        figures = self._figures()
        found = [each for each in origins() if figures.origins[each.name]] or origins()
        labels = [Text(each.label, self._typesetter.origin_style(each.name)) for each in found]
        if (server := figures.statistics.served_by) and not figures.origins:
            labels = [Text(f"{harmless(server)} does not report where its tokens come from", "dim")]
        hides = Text(f" {self._setup.key_of('origins')} hides", "dim")
        words = Text("  ").join([*labels, hides])
        if words != legend.content:
            legend.update(words)

    def _figures(self) -> Figures:
        """Return the figures to show: those of the focused answer, or of the newest one."""
        older = self.state.conversations.branch[:-1]
        followed = [message for message in older if message.id == self._followed]
        return stored_figures(followed) or self.state.answers.figures

    def _show_start(self) -> None:
        """Show the conversation, or the start screen while it is empty."""
        welcome, controller = self._app.query_one(Welcome), self.state.pair_controller
        welcome.display = not self.state.conversations.branch
        self.transcript.display = not welcome.display
        self.arrangement.place()
        if welcome.display:
            welcome.show(controller.pair.name, controller.facts, controller.state)

    def _choose_theme(self, wanted: str | None) -> None:
        if wanted in self._app.available_themes:
            colours = colours_of(self._app)
            is_picture = self._app.is_headless and colours is not None
            theme = self._app.available_themes[wanted]
            self._app.theme = readable_theme(theme, "truecolor" if is_picture else colours)
        elif wanted:
            self.notify(f"Unknown theme {wanted}. /theme lists all.")

    def _answer_view(self, message: Message) -> MessageView:
        folds = self._setup.screen.fold_reasoning
        view = AnswerView(self._typesetter, shows_origins=self.shows_origins, folds=folds)
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

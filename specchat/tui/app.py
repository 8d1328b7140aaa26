"""The application: composes the screen and routes keys and messages to actions."""

import asyncio
import gc
import signal
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from rich.console import Console
from textual import on
from textual._styles_cache import StylesCache
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.events import DescendantFocus, Event, Key, Paste, Resize
from textual.notifications import Notification
from textual.screen import Screen
from textual.widgets import Static
from textual.worker import WorkerFailed

from specchat.chat.draft import Draft
from specchat.connection.opening import LoadPair
from specchat.engine.api import Loading
from specchat.errors import SpecchatError
from specchat.safe_text import harmless
from specchat.sharing.loading import load_in_process
from specchat.system.logs import log_internal_error
from specchat.tui.clipboard import Copier
from specchat.tui.command_app import CommandApp
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.controllers.session import LOG, SECONDS_TO_END
from specchat.tui.house_theme import DARK, HOUSE, own_variables
from specchat.tui.main_view import MainView
from specchat.tui.markdown.prose import Prose
from specchat.tui.setup import Setup
from specchat.tui.shown_notices import UNREAD_SECONDS, Notices
from specchat.tui.widgets.click_line import ClickLine
from specchat.tui.widgets.composer import LONGEST_HISTORY, Composer
from specchat.tui.widgets.header_line import HeaderLine
from specchat.tui.widgets.key_footer import KeyFooter
from specchat.tui.widgets.notice_line import NoticeLine
from specchat.tui.widgets.panel import FigureView, Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.strip import Strip
from specchat.tui.widgets.suggestions import Suggestions
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome

# Textual means one cache for all widgets; one for each keeps the lines of 1024 removed ones, 13 MiB
_caches: Any = StylesCache
_shared: Any = lru_cache(1024)(_caches.get_inner_outer.__wrapped__)
_caches.get_inner_outer = classmethod(_shared)


class ChatScreen(Screen[object]):
    """The main screen. Textual would first focus what comes first, and style it for that."""

    AUTO_FOCUS = "#composer"


class ChatApp(CommandApp):
    """A chat with a pair of models, with statistics of its speculative decoding beside it.

    `commands.py` lists the commands that keys, slash commands and the palette run, and
    `actions/chat_actions.py` says what each of them does. `controllers/chat_state.py` has what the
    screen shows.
    """

    TITLE = "specchat"
    CSS_PATH = "specchat.tcss"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  # Textual does not type it as a ClassVar
        (0, "-narrow"),
        (100, "-medium"),
        (140, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (24, "-tall"), (46, "-high")]  # noqa: RUF012

    def __init__(self, setup: Setup, load: LoadPair = load_in_process) -> None:
        """Create the controllers; nothing is loaded before the first screen is shown."""
        super().__init__()
        self._begin_in(setup.screen.theme)
        self.error_console = Console(quiet=True)  # tracebacks go to the log
        self.failure = ""
        """Why the chat failed, in one line; empty if it did not."""
        self.setup = setup
        self.view = MainView(self, setup)
        self.notices = Notices(self, self.view.show_notice)
        self._composer = Composer()  # until there is a screen
        self.copier = Copier(self, super().copy_to_clipboard)
        self.state = ChatState(self.view, setup, self.call_later, load, self._remember)
        self.state.answers.ghosts.has_colours = self.view.appearance.has_colours
        self.state.message_size.written = lambda: self.view.composer.written
        self.state.unsent.read = self._unsent
        self.conversations, self.answers = self.state.conversations, self.state.answers
        self.pair_controller, self.pulls = self.state.pair_controller, self.state.pulls
        self.view.state = self.state

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours that the style sheet needs and Textual's themes lack."""
        theme = self.current_theme
        return {} if theme in HOUSE else own_variables(theme)

    def _begin_in(self, theme: str) -> None:
        """Use a theme from the first frame on; an unknown one is reported later."""
        for each in HOUSE:
            self.register_theme(each)
        self.set_reactive(App.theme, theme if theme in self.available_themes else DARK.name)
        self.stylesheet.set_variables(self.get_css_variables())

    def _remember(self, name: str, loading: Loading) -> None:
        """Keep a pair that was loaded among those to choose from; files are written in a thread."""
        remember = partial(self.setup.remember, name, loading)
        self.run_worker(remember, group="remember", thread=True)

    def get_default_screen(self) -> Screen[object]:
        """Return the main screen with the classes of its size: later they would restyle it all."""
        screen = ChatScreen(id="_default")
        breakpoints = (self.HORIZONTAL_BREAKPOINTS, self.VERTICAL_BREAKPOINTS)
        for cells, classes in zip(self.size, breakpoints, strict=True):
            screen.add_class(max(each for each in classes if each[0] <= cells)[1], update=False)
        return screen

    def compose(self) -> ComposeResult:
        """Yield the header, the sidebar, the conversation, the panel and the footer."""
        yield HeaderLine()
        with Horizontal(id="middle"):
            yield Sidebar()
            with Vertical(id="chat"):
                yield Welcome()
                yield Transcript(self.view.message_view)
                with Vertical(id="desk"):
                    yield Strip()
                    yield Static(id="legend", markup=False)
                    yield Static(id="status", markup=False)
                    yield ClickLine("compare", "offer")
                    yield ClickLine("models", "hint")
                    yield Suggestions()
                    yield Static(id="attached", markup=False)
                    yield Composer()
            yield Panel(self.setup.key_of)
        yield NoticeLine()
        yield KeyFooter()

    def on_mount(self) -> None:
        """Show the chat, then load the pair."""
        self.set_keymap(dict(self.setup.keys))
        self.theme_changed_signal.subscribe(self, lambda _: self.view.appearance.restyle())
        self.screen_change_signal.subscribe(self, lambda _: self.notices.show_newest())
        self.view.start()
        store = self.conversations.store
        if notice := "\n".join(filter(None, (store.notice, self.setup.notice))):
            self.notify(notice, timeout=10)
        self.call_after_refresh(self._begin)
        self._exit_on_sigterm()
        self._composer = self.view.composer
        # last, as it raises if the store is damaged
        self.view.composer.remember(store.questions(LONGEST_HISTORY))

    def _begin(self) -> None:
        """Load the pair, and do whatever else can wait until the first screen is shown."""
        self.pair_controller.require_session()
        self.state.idle.watch()
        self.state.unsent.begin(self._composer.restore)
        self.run_worker(self._prepare_actions(), group="offers")
        gc.freeze()  # otherwise a full collection freezes the screen for 90 ms
        gc.enable()

    async def _prepare_actions(self) -> None:
        """Import what commands do; then look for pairs to offer.

        The styles of dialogs are read too, or else the first one would have all styles read again.
        """
        await self.load_actions()
        from specchat.tui.screens.dialogs import STYLES

        self.stylesheet.read(STYLES)
        self.stylesheet.parse()
        await self.actions.hints.find_first_pairs()

    def on_resize(self, event: Resize) -> None:
        """Adapt the layout to the terminal's size."""
        self.view.fit(event.size)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Show the figures of the focused answer."""
        self.view.follow(event.widget)

    def on_unmount(self) -> None:
        """End the engine and the downloads, and store what has been written of the answer."""
        self.state.unsent.close()
        self.pulls.end()
        self.pair_controller.close(SECONDS_TO_END)
        self.conversations.store.set_busy_timeout()
        self.answers.end("cancelled")
        if not self.conversations.writes.settle() or self.conversations.writes.lost:
            self.failure = (
                self.failure or f"an answer was not saved. {self.conversations.writes.trouble}"
            )
        self.conversations.store.close()
        gc.unfreeze()

    def _unsent(self) -> Draft:
        """Return what was not sent: the text in the composer, below the questions that waited."""
        draft = self._composer.draft
        waiting = [each.text or each.written for each in self.state.questions.queued]
        return replace(draft, text="\n\n".join([*waiting, *filter(None, [draft.text])]))

    def _exit_on_sigterm(self) -> None:
        """On SIGTERM, store the answer and restore the terminal.

        SIGHUP still ends the process at once: writing to a terminal that is gone may block.
        """
        with suppress(NotImplementedError, RuntimeError):  # on Windows and outside the main thread
            end = partial(self.exit, return_code=128 + signal.SIGTERM)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)

    # --- Textual ---

    def notify(self, message: str, **how: Any) -> None:
        """Show a notice as plain text: names of files and presets may look like markup."""
        how = {"timeout": self.NOTIFICATION_TIMEOUT, **how, "markup": False}
        if how.get("severity") == "error":
            how["timeout"] = UNREAD_SECONDS
        super().notify(harmless(message), **how)
        self.notices.add(Notification(harmless(message), **how))

    def clear_notifications(self) -> None:
        """Remove all notices."""
        super().clear_notifications()
        self.notices.clear()

    @property
    def clipboard(self) -> str:
        """The text copied last in this app."""
        return self.copier.text

    def copy_to_clipboard(self, text: str) -> None:
        """Copy with the desktop's clipboard program, or else via the terminal."""
        self.copier.copy(text)

    async def on_event(self, event: Event) -> None:
        """Show our own errors instead of ending the app; what is typed goes to the composer."""
        if isinstance(event, Key) and not event.is_forwarded:
            self.notices.read()
            if event.key != "ctrl+c" and "actions" in vars(self):  # else it is not armed
                self.actions.leaving.disarm()
        if isinstance(event, Paste) or (isinstance(event, Key) and event.is_printable):
            self.view.navigation.focus_for_typing()
        with self.reporting():
            await super().on_event(event)

    def _handle_exception(self, error: Exception) -> None:
        """Log a bug and exit with one line; turn our own errors from workers into notices."""
        cause = error.error if isinstance(error, WorkerFailed) else error
        if isinstance(cause, SpecchatError):
            self.view.report(cause)
            return
        if not self.failure:  # keep the first error: it caused the others
            self.failure = harmless(log_internal_error(cause, LOG))
        super()._handle_exception(cause)  # type: ignore[arg-type]

    # --- messages from widgets; `call_later` turns our own errors into notices ---

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        self.notices.drop()
        self.view.composer.focus()
        self.call_later(self.state.questions.ask, event.written, event.text)

    @on(Composer.Commanded)
    def _commanded(self, event: Composer.Commanded) -> None:
        self.call_later(self.run_slash, event.text)

    @on(Composer.Changed, "#composer")
    def _message_changed(self, event: Composer.Changed) -> None:
        is_empty = event.text_area.document.end == (0, 0)
        self.state.message_size.changed(is_empty=is_empty)
        self.state.unsent.changed()

    @on(Suggestions.Taken)
    def _suggestion_taken(self, event: Suggestions.Taken) -> None:
        if event.is_file:
            self.view.composer.complete(event.text)
        else:
            self.view.composer.text = ""
            self.call_later(self.run_slash, event.text)

    @on(Transcript.Behind)
    def _scrolled_away(self, event: Transcript.Behind) -> None:
        self.view.is_behind = event.is_behind
        self.view.show_frame()

    @on(Prose.SaveRequested)
    def _save_requested(self, event: Prose.SaveRequested) -> None:
        self.actions.code_saver.save_block(event.block)

    @on(FigureView.Explain)
    def _explain_requested(self, event: FigureView.Explain) -> None:
        self.actions.messages.explain(event)

"""The application: what is on the screen, and what keys and events do."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from typing import ClassVar

from rich.markup import escape
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.events import Resize
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Static

from specchat.chat.export import EXPORTS
from specchat.chat.safe_text import harmless
from specchat.errors import SpecchatError
from specchat.tui.choosing import FIRST_RUN
from specchat.tui.commanding import Commanding
from specchat.tui.controllers.session import SECONDS_TO_END
from specchat.tui.keeping import COMMANDS
from specchat.tui.widgets.composer import LONGEST_HISTORY, Composer
from specchat.tui.widgets.hint import Hint
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.stop_button import StopSign
from specchat.tui.widgets.suggestions import Suggestions
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.typesetter import Typesetter

__all__ = ["ACTIONS", "ChatApp"]

LEAST, NARROW, WIDE = 80, 100, 130


class ChatApp(Commanding):
    """A chat with a pair of models, and the figures of its speculation beside it."""

    TITLE = "specchat"
    CSS_PATH = "specchat.tcss"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012  # typed in Textual as each app's own
        (0, "-narrow"),
        (NARROW, "-medium"),
        (WIDE, "-wide"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", id="help", priority=True),
        Binding("f8", "models", "Models", id="models", priority=True),
        Binding("f2", "conversations", "Chats", id="conversations", priority=True),
        Binding("f3", "statistics", "Figures", id="statistics", priority=True),
        Binding("f4", "origins", "Origins", id="origins", priority=True),
        Binding("f5", "regenerate", "Again", id="regenerate", priority=True),
        Binding("f6", "steps", "Steps", id="steps", show=False, priority=True),
        Binding("f7", "compare", "Compare", id="compare", show=False, priority=True),
        Binding("f9", "settings", "Settings", id="settings", priority=True),
        Binding("ctrl+n", "new", "New", id="new", priority=True),
        Binding("ctrl+f", "search", "Search", id="search", show=False, priority=True),
        Binding(
            "ctrl+t", "search_here", "Search here", id="search_here", show=False, priority=True
        ),
        Binding("ctrl+g", "go_on", "Go on", id="go_on", show=False, priority=True),
        Binding("ctrl+r", "restart", "Restart", id="restart", show=False, priority=True),
        Binding("ctrl+z", "undo", "Undo", id="undo", show=False),
        Binding("ctrl+o", "hide", "Hide the hint", id="hide", show=False, priority=True),
        Binding("escape", "stop", "Stop", id="stop", show=False),
        Binding("ctrl+q", "quit", "Quit", id="quit", priority=True),
    ]

    def compose(self) -> ComposeResult:
        """Put the conversation in the middle."""
        with Horizontal(id="head"):
            yield Static(id="top", markup=False)
            yield StopSign()
        with Horizontal(id="middle"):
            yield Sidebar(id="sidebar")
            with Vertical(id="chat"):
                yield Transcript(self._view)
                yield Static(id="legend", markup=False)
                yield Static(id="status", markup=False)
                yield Hint()
                yield Suggestions()
                yield Composer()
            yield Panel()
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show the chat, and load the pair behind it."""
        self.set_keymap(dict(self._setup.keys))
        self._choose_theme()
        if not self._setup.has_animations:
            self.animation_level = "none"
        self.theme_changed_signal.subscribe(self, lambda _: self._restyle())
        self._restyle()
        self.query_one(Sidebar).display = self._setup.shows_conversations
        self.query_one(Composer).focus()
        self._place_panel(self.size.width)
        self._show_top()
        self.query_one(Composer).remember(self._store.questions(LONGEST_HISTORY))
        for notice in filter(None, (self._store.notice, self._setup.notice)):
            self.notify(notice, timeout=10)
        if self._setup.is_first_run:
            self.query_one(Hint).say(FIRST_RUN)
        self.call_after_refresh(self._begin_loading)
        self.call_after_refresh(gc.freeze)  # to look through all of it takes 50 ms each time

    def on_resize(self, event: Resize) -> None:
        """Make room for the conversation on narrow terminals."""
        self._place_panel(event.size.width)

    def on_unmount(self) -> None:
        """End the engine and what is being pulled, and keep what there is of an answer."""
        self._end_pulls()
        if self._session is not None:
            self._session.close()
            self._session.wait(SECONDS_TO_END)
        self._store.be_patient()
        self._keep_answer("cancelled")
        self._conversing.settle()
        self._store.close()
        gc.unfreeze()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys to what lies over the chat, while something does."""
        if action in COMMANDS and isinstance(self.screen, ModalScreen):
            return False
        return super().check_action(action, parameters)

    def action_help_quit(self) -> None:
        """Stop the answer with Ctrl+C, or say how to leave."""
        if self._answering is not None:
            self.action_stop()
        else:
            self.notify("Ctrl+Q leaves the chat.")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Offer everything by name."""
        yield from super().get_system_commands(screen)
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and binding.action not in {"quit", "help"}:
                act = binding.action
                yield SystemCommand(
                    f"{binding.description} ({binding.key})",
                    COMMANDS.get(act, binding.description),
                    lambda act=act: self.call_later(self.run_action, act),
                )
        yield SystemCommand("Statistics", COMMANDS["answers"], self.action_answers)
        yield SystemCommand(
            "System prompt", "Write what the model is told first", self.action_system
        )
        yield SystemCommand("Presets", COMMANDS["presets"], self.action_presets)
        for preset in self._store.presets():
            yield SystemCommand(
                escape(f"Preset: {harmless(preset.name)}"),
                "Use its system prompt and sampling in this conversation",
                lambda preset=preset: self._use_preset(preset),
            )
        for form in EXPORTS:
            yield SystemCommand(
                f"Export as {form}",
                "Write this conversation to a file in the present folder",
                lambda form=form: self.action_export(form),
            )
        yield SystemCommand("Rename chat", "Give this conversation a title", self._rename)

    def _choose_theme(self) -> None:
        """Take the theme of the settings; one nobody knows is told of."""
        wanted = self._setup.theme
        if wanted in self.available_themes:
            is_unreadable = bool(os.environ.get("NO_COLOR")) and "ansi" in wanted
            self.theme = "textual-dark" if is_unreadable else wanted
        elif wanted:
            self.notify(f"There is no theme {wanted}; Ctrl+P, Theme shows them.")

    def _restyle(self) -> None:
        """Follow the theme."""
        self._typesetter = Typesetter(self.theme_variables, is_dark=self.current_theme.dark)
        self.query_one(Transcript).restyle(self._typesetter)
        self._show_legend()

    def _place_panel(self, width: int) -> None:
        """Show the panel where there is room; where there is not, the user may still ask for it.

        The list lies over the conversation where both would be too narrow.
        """
        self.query_one(Sidebar).set_class(width < LEAST, "-over")
        has_room = width >= NARROW
        if has_room != self._has_room:
            self._has_room = has_room
            self.query_one(Panel).display = self._panel_wanted and has_room
            self._show_figures()
            self._show_top()

    def _show_top(self) -> None:
        conversation = self._conversing.conversation
        title = (conversation.title if conversation else "") or "new chat"
        parts = [self._pulls_in_words(), title, self._pair.name]
        if self._preset:
            parts.append(f"preset {self._preset.name}")
        elif self._conversing.system_prompt:
            parts.append("system prompt")
        context = self._context_in_words()
        if not self.query_one(Panel).display:
            parts.insert(1, self._figures.in_short())
        if self._has_room:
            parts.append(context and f"{context} of {self._capacity}")
        else:  # at the end it would be cut off
            parts.insert(0, context)
        self.query_one("#top", Static).update(harmless("  ·  ".join(filter(None, parts))))

    def _context_in_words(self) -> str:
        """Return how full the context is, empty before there is anything in it."""
        stats = self._figures.statistics
        if not self._capacity or not stats.prompt_tokens:
            return ""
        return f"context {(stats.prompt_tokens + stats.generated_tokens) / self._capacity:.0%}"

    async def _dispatch_message(self, message: Message) -> None:
        """Show what one of our own errors says: only Textual's way would be to end with it."""
        try:
            await super()._dispatch_message(message)
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=15)
        except NoMatches:  # threads may still tell of something when the widgets are gone already
            if self._screen_stack and self._screen_stack[0].query("#top"):
                raise


ACTIONS = frozenset(
    binding.id for binding in ChatApp.BINDINGS if isinstance(binding, Binding) and binding.id
)
"""The names that keys can be set for."""

"""The application: what is on the screen, and what keys and events do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Static

from specchat.chat.export import EXPORTS
from specchat.errors import SpecchatError
from specchat.tui.answering import Tempo
from specchat.tui.composer import Composer
from specchat.tui.figures import summary
from specchat.tui.keeping import COMMANDS, Keeping
from specchat.tui.messages import (
    AnswerEnded,
    AnswerFailed,
    EngineLost,
    EngineProgressed,
    EngineReady,
    StepsArrived,
)
from specchat.tui.panel import Panel
from specchat.tui.session import Load, Session, load_in_process
from specchat.tui.setup import Setup
from specchat.tui.sidebar import Sidebar
from specchat.tui.transcript import Transcript
from specchat.tui.typesetter import Typesetter

__all__ = ["ChatApp"]

NARROW, WIDE = 100, 130


class ChatApp(Keeping):
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
        Binding("f2", "conversations", "Chats", id="conversations", priority=True),
        Binding("f3", "statistics", "Figures", id="statistics", priority=True),
        Binding("f4", "origins", "Origins", id="origins", priority=True),
        Binding("f5", "regenerate", "Again", id="regenerate", priority=True),
        Binding("f6", "steps", "Steps", id="steps", priority=True),
        Binding("f7", "compare", "Compare", id="compare", priority=True),
        Binding("f8", "models", "Models", id="models", priority=True),
        Binding("f9", "settings", "Settings", id="settings", priority=True),
        Binding("ctrl+n", "new", "New", id="new", priority=True),
        Binding("ctrl+f", "search", "Search", id="search", show=False, priority=True),
        Binding(
            "ctrl+t", "search_here", "Search here", id="search_here", show=False, priority=True
        ),
        Binding("ctrl+g", "go_on", "Go on", id="go_on", show=False, priority=True),
        Binding("ctrl+r", "restart", "Restart", id="restart", show=False, priority=True),
        Binding("ctrl+z", "undo", "Undo", id="undo", show=False),
        Binding("escape", "stop", "Stop", id="stop", show=False),
        Binding("ctrl+q", "quit", "Quit", id="quit", priority=True),
    ]

    def __init__(self, setup: Setup, load: Load = load_in_process) -> None:
        """Take what to begin with; nothing is loaded before the first screen is shown."""
        super().__init__(setup)
        self._load = load

    # --- the screen

    def compose(self) -> ComposeResult:
        """Put the conversation in the middle."""
        yield Static(id="top", markup=False)
        with Horizontal(id="middle"):
            yield Sidebar(id="sidebar")
            with Vertical(id="chat"):
                yield Transcript()
                yield Static(id="status", markup=False)
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
        for notice in filter(None, (self._store.notice, self._setup.notice)):
            self.notify(notice, timeout=10)
        self.call_after_refresh(self._begin_loading)

    def on_resize(self, event: Resize) -> None:
        """Make room for the conversation on narrow terminals."""
        self._place_panel(event.size.width)

    def on_unmount(self) -> None:
        """End the engine, and keep what there is of an answer."""
        if self._session is not None:
            self._session.close()
            self._session.wait(3.0)
        self._keep_answer("cancelled")
        self._store.close()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave the keys to what lies over the chat, while something does."""
        if action in COMMANDS and isinstance(self.screen, ModalScreen):
            return False
        return super().check_action(action, parameters)

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
        yield SystemCommand("System prompt", "Write what the model is told first", self._system)
        yield SystemCommand("Keep as preset", "Keep the system prompt by a name", self._keep_preset)
        for preset in self._store.presets():
            yield SystemCommand(
                f"Preset: {preset.name}",
                "Use its system prompt from now on",
                lambda preset=preset: self._use_preset(preset),
            )
        for form in EXPORTS:
            yield SystemCommand(
                f"Export as {form}",
                "Write this conversation to a file in the present folder",
                lambda form=form: self._export(form),
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

    def _place_panel(self, width: int) -> None:
        self.query_one(Panel).display = self._panel_wanted and width >= NARROW

    def _show_top(self) -> None:
        conversation = self._conversing.conversation
        title = (conversation.title if conversation else "") or "new chat"
        parts = [title, self._pair.name]
        stats = self._figures.statistics
        if self._capacity and stats.prompt_tokens:
            used = stats.prompt_tokens + stats.generated_tokens
            parts.append(f"context {used / self._capacity:.0%} of {self._capacity}")
        self.query_one("#top", Static).update("  ·  ".join(parts))

    async def _dispatch_message(self, message: Message) -> None:
        """Show what one of our own errors says: only Textual's way would be to end with it."""
        try:
            await super()._dispatch_message(message)
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=15)

    # --- the engine

    def _begin_loading(self) -> None:
        """Load the pair, unless a question came before that."""
        if not self._has_begun:
            self._start()

    def _require_session(self) -> Session:
        """Load the pair unless it is loaded, or being loaded."""
        if self._session is None:
            self._start()
        assert self._session is not None  # noqa: S101  # for the type checker
        return self._session

    def _start(self) -> None:
        """Load the pair, ending one that is loaded."""
        if self._session is not None:
            self._session.close()
        self._has_begun = True
        self._capacity = 0
        self._tempo = Tempo(self._pair.loading.threads or os.cpu_count() or 1)
        self._session = Session(self._pair.loading, self.post_message, self._load)
        self._session.interval = self._tempo.interval

    @on(EngineProgressed)
    def _progressed(self, event: EngineProgressed) -> None:
        doing = "reading the prompt" if event.stage == "prompt" else f"loading the {event.stage}"
        done = "█" * round(20 * event.share)
        self._say("" if event.share >= 1 else f"{doing} {done:░<20} {event.share:.0%}")

    @on(EngineReady)
    def _engine_ready(self, event: EngineReady) -> None:
        self._capacity = event.facts.context
        panel = self.query_one(Panel)
        panel.say_facts(event.facts)
        panel.show(self._figures)
        self._say(event.facts.told)
        self._show_top()

    @on(EngineLost)
    def _lost(self, event: EngineLost) -> None:
        self._session = None
        self._say(f"{event.reason}  Ctrl+R starts it again, F8 chooses another.")

    @on(StepsArrived)
    def _steps_arrived(self, event: StepsArrived) -> None:
        answering = self._answering
        if answering is None or event.number != answering.number:
            return
        if answering.is_comparison:
            self._say(f"decoding plainly: {event.statistics.generated_tokens} tokens")
            return
        self._figures.add(event.chunks, event.statistics)
        if answering.view is not None and answering.message is not None:
            answering.view.add(event.chunks)
            self._conversing.write(answering.message, answering.view.text)
        if event.statistics.left_out:
            self._say(
                f"the context is full: the oldest {event.statistics.left_out} messages"
                " are no longer seen by the model"
            )
        if self._tempo.is_time_for_figures():
            self.query_one(Panel).show(self._figures)
        if self._session is not None:
            self._session.interval = self._tempo.adapt()

    @on(AnswerEnded)
    def _ended(self, event: AnswerEnded) -> None:
        answering = self._answering
        if answering is None or event.number != answering.number:
            return
        if answering.is_comparison:
            self._compared(event)
            return
        self._figures.statistics = event.statistics
        self._keep_answer(event.finish)
        self.query_one(Panel).show(self._figures)
        self._show_top()

    @on(AnswerFailed)
    def _failed(self, event: AnswerFailed) -> None:
        answering = self._answering
        if answering is not None and event.number == answering.number:
            self._keep_answer("failed", event.reason)

    def _compared(self, event: AnswerEnded) -> None:
        """Show what decoding plainly has taken."""
        self._answering = None
        plain = event.statistics.tokens_per_second
        self._say("")
        if not plain or event.finish == "cancelled":
            return
        self._figures.plain_rate = plain
        self.query_one(Panel).show(self._figures)
        ours = self._figures.statistics.tokens_per_second
        self.notify(
            f"plain decoding: {plain:.1f} tokens/s, with speculation {ours:.1f}:"
            f" {ours / plain:.2f} times as fast",
            timeout=15,
        )

    def _keep_answer(self, finish: str, reason: str = "") -> None:
        """Keep what an answer has come to, and say how it went."""
        answering, self._answering = self._answering, None
        if answering is None or answering.view is None or answering.message is None:
            return
        view, stats = answering.view, self._figures.statistics
        self._conversing.finish(
            answering.message,
            view.text,
            finish,
            stats if stats.generated_tokens else None,
            view.pieces,
            speedup=self._figures.speedup,
            thought_s=view.thought_s,
        )
        words = summary(stats, self._figures.speedup)
        ending = {"cancelled": "stopped", "length": "cut at the limit", "context": "context full"}
        view.say(
            reason or " · ".join(filter(None, (ending.get(finish, ""), words))),
            has_failed=bool(reason),
        )

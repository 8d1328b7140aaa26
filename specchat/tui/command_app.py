"""The commands of the chat as keys, slash commands and entries of the palette run them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from textual.actions import parse
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen

from specchat.errors import InvalidOption, SpecchatError
from specchat.safe_text import harmless
from specchat.tui.commands import (
    CANCEL_EDIT,
    COMMANDS,
    FOOTER,
    OFFER_COMMANDS,
    find_command,
    find_slash,
    key_names,
    palette_rows,
)
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.palette import PaletteProvider
from specchat.tui.setup import Setup
from specchat.tui.shown_notices import Notices
from specchat.tui.widgets.message_views import MessageView

if TYPE_CHECKING:
    from specchat.tui.actions.chat_actions import ChatActions

REPLACED_COMMANDS = {"Theme", "Maximize", "Minimize"}
"""Commands of Textual left out: Theme is not saved, the others show a composer that cannot send."""
UNARMED = {("previous_branch",), ("next_branch",)}
"""What keys do to a message after a click or a search, too: they are no letters."""


class CommandApp(App[None]):
    """An application that runs the commands of `commands.py`, by what `actions` has for each.

    Errors of ours become notices.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(c.key, c.id, c.title, id=c.id, show=c.id in FOOTER, priority=c.is_priority)
            for c in COMMANDS
            if c.key
        ),
        *(Binding(c.key, CANCEL_EDIT, "Cancel", id=c.id) for c in COMMANDS if c.id == "stop"),
    ]
    COMMANDS = {PaletteProvider}  # noqa: RUF012  # Textual does not type it as a ClassVar

    setup: Setup
    view: MainView
    state: ChatState
    notices: Notices

    @cached_property
    def actions(self) -> "ChatActions":
        """What commands and keys do; the first frame needs none of it."""
        return _import_actions()(self.view, self.state)

    async def load_actions(self) -> None:
        """Import what commands do in a thread, as it takes 90 ms."""
        await asyncio.to_thread(_import_actions)

    def get_key_display(self, binding: Binding) -> str:
        """Name a key at the bottom as everywhere else: Ctrl+D, F8, Esc; a letter as it is typed."""
        name = super().get_key_display(binding)
        is_named = bool(binding.key_display) or (len(name) == 1 and binding.key != "enter")
        return name if is_named else key_names(binding.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable our keys while a dialog is open, and the hint's keys while it offers nothing."""
        is_ours = find_command(action) is not None and action not in {"help", "quit"}
        if is_ours and isinstance(self.screen, ModalScreen):
            return False
        if action == "message":
            view = self.focused if isinstance(self.focused, MessageView) else None
            is_free = parameters in UNARMED or (view is not None and view.is_armed)
            return is_free and (view is None or view.takes(str(parameters[0])))
        if action in OFFER_COMMANDS:
            return self.state.hint.accepts(action)
        if action in {"stop", CANCEL_EDIT}:
            return self.state.questions.ends == action
        return super().check_action(action, parameters)

    async def run_action(
        self,
        action: Any,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run one of our commands or keys, or an action of Textual or of a widget."""
        with self.reporting():
            return await self._run(action, default_namespace, namespaces)
        return True

    async def _run(
        self,
        action: Any,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run an action as `run_action` does; our own errors are raised."""
        namespace, name, arguments = parse(action) if isinstance(action, str) else action
        is_ours = namespace == "app" or (not namespace and default_namespace in {None, self})
        call = self._call_for(name) if is_ours else None
        if call is None:
            return await super().run_action(action, default_namespace, namespaces)
        if not self.check_action(name, arguments):
            return False
        command = find_command(name)
        if command is None or command.while_answering or not self.state.answers.is_busy():
            if command is not None:
                self.notices.drop()
            result = call(*arguments)
            if isawaitable(result):
                await result
        return True

    def _call_for(self, name: str) -> Callable[..., Any] | None:
        return self.actions.calls.get(name) or self.actions.key_calls.get(name)

    async def run_slash(self, text: str) -> None:
        """Run a slash command; an invalid one is put back into the composer."""
        try:
            await self._run(find_slash(text))
        except InvalidOption as error:
            self.view.composer.forget(text)
            self.view.put_back(text)
            self.notify(str(error), severity="warning")

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Yield the palette's entries: every command that can be run, and every preset."""
        for title, words, action in palette_rows(self.setup.key_of):
            if action not in OFFER_COMMANDS or self.state.hint.accepts(action):
                run = partial(self.call_later, self.run_action, action)
                yield SystemCommand(title, words, run)
        for preset in self.state.conversations.store.presets():
            title = escape(f"Preset: {harmless(preset.name)}")
            use = partial(self.actions.conversations.use_preset, preset)
            yield SystemCommand(title, "Use it in this conversation", use)
        for command in super().get_system_commands(screen):
            if command.title not in REPLACED_COMMANDS:
                yield command

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Turn our own errors into notices; ignore missing widgets once the screen has closed."""
        try:
            yield
        except SpecchatError as error:
            self.view.report(error)
        except NoMatches:
            if self.screen_stack and self.screen_stack[0].query("#header"):
                raise


def _import_actions() -> "type[ChatActions]":
    from specchat.tui.actions.chat_actions import ChatActions

    return ChatActions

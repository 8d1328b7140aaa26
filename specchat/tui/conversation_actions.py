"""What can be done with conversations: opening, searching, naming, exporting, their presets."""

from __future__ import annotations

from pathlib import Path

from textual.app import App

from specchat.chat.safe_text import harmless
from specchat.chat.store import Preset
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.main_view import MainView
from specchat.tui.preset_dialogs import choose_preset
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, TextScreen

__all__ = ["ConversationActions"]


class ConversationActions:
    """Shows what the controllers do, and asks the user in workers of the app."""

    def __init__(
        self, app: App[None], view: MainView, conversations: Conversations, answers: Answers
    ) -> None:
        """Take the app that shows dialogs, the view, and the controllers."""
        self._app = app
        self._view = view
        self._conversations = conversations
        self._answers = answers

    async def new(self) -> None:
        """Start a new conversation."""
        self._conversations.begin()
        await self._show()
        self._view.show_conversations()

    async def open(self, number: int, message: int | None = None) -> None:
        """Open a conversation, at a message if one is named."""
        if not self._answers.is_busy():
            self._conversations.open(number, message)
            await self._show()
            await self._view.reveal(message)

    async def delete(self, number: int) -> None:
        """Delete a conversation."""
        is_open = number == self._conversations.number
        if is_open and self._answers.is_busy():
            return
        self._conversations.delete_conversation(number)
        if is_open:
            await self.new()
        self._view.show_conversations()
        self._app.notify("Deleted. /undo restores it.")

    async def undo(self) -> None:
        """Restore what was deleted last."""
        before = self._conversations.number
        if not self._conversations.undo():
            self._app.notify("There is nothing to restore.")
            return
        is_same = before == self._conversations.number
        await (self._view.show_branch() if is_same else self._show())
        self._view.show_conversations()

    def export(self, form: str) -> None:
        """Write the conversation to a new file in the current folder."""
        if self._conversations.number is None:
            self._app.notify("There is nothing to export yet.")
            return
        try:
            path = self._conversations.export(form, Path.cwd())
        except OSError as error:
            self._view.report(f"{error.filename} cannot be written: {error.strerror}")
        else:
            self._app.notify(f"Exported to {path}.")

    def search(self) -> None:
        """Search all conversations."""
        self._app.run_worker(self._search("Search all conversations", None))

    def search_here(self) -> None:
        """Search the open conversation."""
        number = self._conversations.number
        if number is None:
            self._app.notify("This conversation is empty. Ctrl+F searches all of them.")
        else:
            self._app.run_worker(self._search("Search this conversation", number))

    def rename(self) -> None:
        """Give the conversation a title."""
        if self._conversations.number is not None:
            self._app.run_worker(self._rename())

    def edit_system_prompt(self) -> None:
        """Edit the system prompt of the conversation."""
        self._app.run_worker(self._edit_system_prompt())

    def choose_preset(self) -> None:
        """Use, create, edit or delete presets."""
        self._app.run_worker(self._choose_preset())

    def use_preset(self, preset: Preset) -> None:
        """Use a preset in this conversation from now on."""
        self._conversations.use_preset(preset)
        self._view.show_top()
        self._app.notify(f"This conversation now uses preset {preset.name}.")

    async def _show(self) -> None:
        """Show another conversation than before."""
        self._answers.reset()
        await self._view.show_branch()
        self._view.composer.focus()

    async def _search(self, title: str, within: int | None) -> None:
        """Find messages by their words, and open the chosen one."""

        def find(words: str) -> list[Choice]:
            found = self._conversations.store.search(words, conversation=within)
            return [Choice(f"{f.conversation} {f.message}", f.title, f.snippet) for f in found]

        chosen = await self._app.push_screen_wait(ChoiceScreen(title, [], search=find))
        if chosen:
            conversation, message = map(int, chosen.split())
            await self.open(conversation, message)

    async def _rename(self) -> None:
        old = harmless(self._conversations.title)
        title = await self._app.push_screen_wait(LineScreen("Title", old))
        if title:
            self._conversations.rename(title)
            self._view.show_conversations()
            self._view.show_top()

    async def _edit_system_prompt(self) -> None:
        old = harmless(self._conversations.system_prompt)
        text = await self._app.push_screen_wait(TextScreen("System prompt", old))
        if text is not None:
            self._conversations.set_system_prompt(text)
            self._view.show_top()

    async def _choose_preset(self) -> None:
        chat = self._conversations
        sampling = {**self._answers.changed, **(chat.preset.sampling if chat.preset else {})}
        preset = await choose_preset(self._app, chat.store, chat.system_prompt, sampling)
        if preset is not None:
            self.use_preset(preset)

"""Conversations, presets and settings: opening, searching, naming, changing."""

from __future__ import annotations

from pathlib import Path
from time import time

from textual import on, work

from specchat.chat.export import EXPORTS
from specchat.chat.safe_text import harmless
from specchat.tui.presets import Presets
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, TextScreen
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.sidebar import Sidebar

__all__ = ["COMMANDS", "Keeping"]

COMMANDS = {
    "conversations": "Show or hide the list of conversations",
    "statistics": "Show or hide the figures of speculation",
    "origins": "Colour tokens by where they came from, or show Markdown",
    "regenerate": "Answer the last question once more",
    "steps": "Go through the last answer step by step",
    "compare": "Decode the last answer again without speculation, for its speed",
    "models": "Choose another pair, or pull one in the background",
    "answers": "The statistics of this conversation, answer by answer",
    "settings": "Change settings; those of models count from the next start, others at once",
    "presets": "Use a system prompt and sampling by name; make, change and delete them",
    "new": "Begin a new conversation",
    "search": "Search in all conversations",
    "search_here": "Search in this conversation",
    "go_on": "Continue an answer that was stopped",
    "restart": "Start the engine again",
    "undo": "Bring back what was deleted last",
    "hide": "Hide the line above the composer that offers pairs",
    "stop": "Stop the answer",
}


class Keeping(Presets):
    """Commands for what is kept."""

    async def action_new(self) -> None:
        """Begin a new conversation."""
        if not self._is_busy():
            self._conversing.begin()
            await self._show_other()
            self._refresh_sidebar()

    @on(Sidebar.Chosen)
    async def _chosen(self, event: Sidebar.Chosen) -> None:
        await self._open(event.conversation)
        self._uncover()

    async def _open(self, number: int, message: int | None = None) -> None:
        """Go on with a conversation."""
        if self._is_busy():
            return
        self._conversing.open(number, message)
        await self._show_other()
        view = await self._transcript.reveal(message) if message is not None else None
        if view is not None:
            view.focus(scroll_visible=False)

    @on(Sidebar.Deleting)
    async def _deleting(self, event: Sidebar.Deleting) -> None:
        """Delete a conversation; Undo brings it back."""
        conversation = self._conversing.conversation
        is_open = conversation is not None and conversation.id == event.conversation
        if is_open and self._is_busy():
            return
        self._conversing.delete_conversation(event.conversation)
        if is_open:
            await self.action_new()
        self._refresh_sidebar()
        self.notify("Deleted. The command Undo brings it back.")

    @on(Sidebar.Left)
    def _left_sidebar(self) -> None:
        """Esc stops an answer wherever one is, else it leads back to the composer."""
        if self._answering is not None:
            self.action_stop()
        else:
            self.query_one(Composer).focus()
            self._uncover()

    def _uncover(self) -> None:
        """Hide the list where it lies over the conversation."""
        sidebar = self.query_one(Sidebar)
        if sidebar.display and sidebar.has_class("-over"):
            self.action_conversations()

    def action_conversations(self) -> None:
        """Show or hide the list of conversations."""
        sidebar = self.query_one(Sidebar)
        sidebar.display = not sidebar.display
        self._refresh_sidebar()
        (sidebar if sidebar.display else self.query_one(Composer)).focus()

    def action_search(self) -> None:
        """Search in all conversations."""
        self._search("Search in all conversations", None)

    def action_search_here(self) -> None:
        """Search in this conversation."""
        conversation = self._conversing.conversation
        if conversation is not None:
            self._search("Search in this conversation", conversation.id)
        else:
            self.notify("There is nothing to search in yet: Ctrl+F searches everywhere.")

    @work
    async def _search(self, title: str, within: int | None) -> None:
        """Find messages by their words, and go to the one that is chosen."""

        def find(words: str) -> list[Choice]:
            found = self._store.search(words, conversation=within)
            return [Choice(f"{f.conversation} {f.message}", f.title, f.snippet) for f in found]

        chosen = await self.push_screen_wait(ChoiceScreen(title, [], search=find))
        if chosen:
            conversation, message = map(int, chosen.split())
            await self._open(conversation, message)

    def action_export(self, form: str) -> None:
        """Write the conversation to a file that is not there yet."""
        conversation = self._conversing.conversation
        if conversation is None:
            self.notify("There is nothing to export yet.")
            return
        conversation = self._store.conversation(conversation.id)
        path = Path.cwd() / f"specchat-{conversation.id}-{int(time())}.{form}"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(EXPORTS[form](conversation, self._conversing.tree))
        except OSError as error:
            self.notify(f"{path} cannot be written: {error.strerror}", severity="error")
        else:
            self.notify(f"Written to {path}.")

    @work
    async def _rename(self) -> None:
        """Give the conversation a title."""
        conversation = self._conversing.conversation
        if conversation is not None:
            title = await self.push_screen_wait(LineScreen("Title", harmless(conversation.title)))
            if title:
                self._conversing.rename(title)
                self._refresh_sidebar()
                self._show_top()

    @work
    async def action_system(self) -> None:
        """Write what the model is told first."""
        text = await self.push_screen_wait(
            TextScreen("System prompt", harmless(self._conversing.system_prompt))
        )
        if text is not None:
            self._conversing.set_system_prompt(text)
            self._show_top()

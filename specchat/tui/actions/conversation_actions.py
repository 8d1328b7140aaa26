"""What can be done with conversations: opening, searching, naming, exporting, their presets."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from specchat.chat.conversation import Tree
from specchat.chat.export import NAMES, export_file
from specchat.chat.message_search import SearchResult, search_messages
from specchat.chat.preset import Preset
from specchat.errors import InvalidOption, SpecchatError
from specchat.safe_text import harmless, in_one_line
from specchat.system.current_folder import current_folder
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen, ListEntry, TextScreen, deletion
from specchat.tui.texts.sampling_text import in_line, in_lines, read_sampling
from specchat.tui.texts.schema_text import in_list, read_schema
from specchat.tui.widgets.sidebar import Sidebar, when

NEW = "new"
PROMPT_TITLE = "System prompt of {}"
SAMPLING_TITLE = (
    "Sampling options of {}\nOne per line, such as temperature = 0.7; others keep their defaults"
)
SCHEMA_TITLE = "Schema of {}\nA file, JSON, or fields such as name, age int; leave empty for none"


@dataclass(frozen=True, slots=True)
class ConversationActions:
    """Acts on whole conversations; methods that ask the user must run in a worker."""

    view: MainView
    state: ChatState

    def act_on_marked(self, what: Literal["open", "rename", "delete"]) -> None:
        """Open, rename or delete the conversation highlighted in the list."""
        number = self.view.app.query_one(Sidebar).marked
        if number is not None:
            if what == "open":  # what is typed from now on is for that conversation
                self.view.navigation.write()
            self.view.app.call_later(self._act, what, number)

    async def _act(self, what: Literal["open", "rename", "delete"], number: int) -> None:
        if what == "delete":
            await self.delete(number)
        elif what == "rename":
            self.view.app.run_worker(self.rename(number))
        else:
            await self.open(number)
            self.view.navigation.uncover()

    async def new(self) -> None:
        """Start a new conversation; the open one goes on being answered."""
        if self.state.answers.is_racing():
            return
        self.state.conversations.begin()
        await self._show()
        self.view.show_conversations()

    async def open(self, number: int, message: int | None = None, *, unfolds: bool = False) -> None:
        """Open a conversation and scroll to `message`; `unfolds` also opens its reasoning."""
        if not self.state.answers.is_racing():
            self.state.conversations.open(number, message)
            await self._show()
            await self.view.navigation.reveal(message, unfolds=unfolds)

    async def delete(self, number: int) -> None:
        """Delete a conversation."""
        if not self.state.answers.is_busy_in(number):
            self.view.app.run_worker(self._ask_to_delete(number))

    async def _ask_to_delete(self, number: int) -> None:
        title = self.state.conversations.store.conversation(number).title
        undo = f"{self.state.key_of('undo')} brings it back, for a day."
        is_wanted = await self.view.app.push_screen_wait(
            deletion("Delete this conversation?", title, undo)
        )
        is_open = number == self.state.conversations.number
        if not is_wanted or self.state.answers.is_busy_in(number):
            return
        self.state.changes.delete_conversation(number)
        if is_open:
            await self.new()
        self.view.show_conversations()
        self.view.composer.leaves_undo = True
        self.view.notify(f"Deleted. {self.state.key_of('undo')} restores it.")

    async def undo(self) -> None:
        """Restore what was deleted last."""
        before = self.state.conversations.number
        if self.state.answers.is_busy_here():
            return
        if not self.state.changes.undo():
            self.view.notify("There is nothing to restore.")
            return
        if before != self.state.conversations.number:
            await self._show()
        else:
            self.state.answers.recall()
            await self.view.show_branch()
        self.view.show_conversations()

    def export(self, form: str) -> None:
        """Write the conversation to a new file in the current folder."""
        chat = self.state.conversations
        if chat.conversation is None:
            self.view.notify("There is nothing to export yet.")
        else:
            kept = chat.conversation
            with suppress(SpecchatError):  # else it is exported as it was opened
                kept = chat.store.conversation(kept.id)
            shown = replace(
                kept,
                leaf=chat.leaf,
                system_prompt=chat.system_prompt,
                schema=chat.schema,
            )
            write = partial(export_file, current_folder(), form, shown, Tree(chat.tree.values()))
            self.view.app.run_worker(self._export(write))

    async def _export(self, write: Callable[[], Path]) -> None:
        self.view.notify(f"Exported to {await asyncio.to_thread(write)}.")

    async def search_here(self) -> None:
        """Search the open conversation."""
        number = self.state.conversations.number
        if number is None:
            search = self.state.key_of("search")
            self.view.notify(f"This conversation is empty. {search} searches all of them.")
        else:
            await self.search("Search this conversation", number)

    async def rename(self, number: int | None = None) -> None:
        """Give a conversation a title, by default the open one."""
        chat = self.state.conversations
        number = number or chat.number
        if number is None:
            self.view.notify("This conversation is empty: there is nothing to rename yet.")
            return
        old = harmless(chat.store.conversation(number).title)
        title = await self.view.app.push_screen_wait(LineScreen("Rename the conversation", old))
        if title:
            chat.rename(number, title)
            self.view.show_conversations()
            self.view.show_state()

    async def edit_system_prompt(self) -> None:
        """Edit the system prompt of the conversation."""
        old = harmless(self.state.conversations.system_prompt)
        text = await self.view.app.push_screen_wait(TextScreen("System prompt", old))
        if text is not None:
            self.state.conversations.set_system_prompt(text)
            self.view.show_state()

    async def choose_preset(self) -> None:
        """Use, create, edit or delete presets."""
        presets = {
            f"preset {preset.name}": preset for preset in self.state.conversations.store.presets()
        }
        listed = [ListEntry(key, each.name, _described(each)) for key, each in presets.items()]
        listed.append(ListEntry(NEW, "New preset", "from this system prompt, sampling and schema"))
        chosen = await self.view.app.push_screen_wait(ChoiceScreen("Presets", listed))
        if chosen == NEW:
            await self._create_preset()
        elif chosen:
            await self._act_on(presets[chosen])

    def use_preset(self, preset: Preset) -> None:
        """Use a preset in this conversation from now on. Raises InvalidOption for its schema."""
        try:
            schema = read_schema(preset.schema) if preset.schema.strip() else None
        except InvalidOption as error:
            raise InvalidOption(
                f"Preset {preset.name} cannot be used. Its schema: {in_one_line(str(error))}."
                " /presets edits it."
            ) from None
        self.state.conversations.use_preset(preset, schema)
        self.view.show_state()
        self.view.notify(f"This conversation now uses preset {preset.name}.")

    async def _show(self) -> None:
        """Show the conversation that has just been opened or begun."""
        self.view.navigation.write()
        self.state.questions.reset()
        await self.view.show_branch()

    async def _act_on(self, preset: Preset) -> None:
        choices = [
            ListEntry("use", "Use", "in this conversation, from now on"),
            ListEntry("change", "Edit", "its system prompt, sampling and schema"),
            ListEntry("delete", "Delete"),
        ]
        chosen = await self.view.app.push_screen_wait(
            ChoiceScreen(f"Preset {preset.name}", choices)
        )
        if chosen == "use":
            self.use_preset(preset)
        elif chosen == "change":
            await self._edit_preset(preset)
        elif chosen == "delete":
            self.state.conversations.store.delete_preset(preset.name)
            self.view.notify(f"Deleted preset {preset.name}.")

    async def _create_preset(self) -> None:
        """Create a preset from the current system prompt, sampling options and schema."""
        chat = self.state.conversations
        sampling = {**self.state.options.changed, **(chat.preset.sampling if chat.preset else {})}
        name = await self.view.app.push_screen_wait(
            LineScreen("Name of the preset", check=_check_name)
        )
        name = " ".join(harmless(name or "").split())
        if name:
            schema = chat.schema.typed if chat.schema else ""
            await self._edit_preset(Preset(name, chat.system_prompt, sampling, schema))

    async def _edit_preset(self, preset: Preset) -> None:
        """Ask for the parts of a preset, then save and use it; cancelling changes nothing."""
        name, show = preset.name, self.view.app.push_screen_wait
        prompt = await show(TextScreen(PROMPT_TITLE.format(name), harmless(preset.system_prompt)))
        if prompt is None:
            return
        title = SAMPLING_TITLE.format(name)
        sampling = await show(TextScreen(title, in_lines(preset.sampling), read_sampling))
        if sampling is None:
            return
        title = SCHEMA_TITLE.format(name)
        schema = await show(TextScreen(title, harmless(preset.schema), _typed_schema))
        if schema is None:
            return
        edited = Preset(name, prompt.strip(), read_sampling(sampling), _typed_schema(schema))
        self.state.conversations.store.save_preset(edited)
        self.use_preset(edited)

    async def search(
        self, title: str = "Search all conversations", within: int | None = None
    ) -> None:
        """Search all conversations, or one, and open the message that is chosen."""

        def find(words: str) -> list[ListEntry]:
            found = search_messages(self.state.conversations.store, words, conversation=within)
            return [
                ListEntry(
                    f"{each.conversation} {each.message} {each.in_reasoning:d}",
                    each.title,
                    f"{when(each.created)} · {_source(each)}: {each.snippet}",
                )
                for each in found
            ]

        chosen = await self.view.app.push_screen_wait(ChoiceScreen(title, [], search=find))
        if chosen:
            conversation, message, is_reasoning = map(int, chosen.split())
            await self.open(conversation, message, unfolds=bool(is_reasoning))


def _source(found: SearchResult) -> str:
    return "Reasoning" if found.in_reasoning else NAMES[found.role]


def _described(preset: Preset) -> str:
    """Return what a preset sets, for the list."""
    parts = in_line(preset.sampling), in_list(preset.schema), preset.system_prompt
    return " · ".join(filter(None, parts))


def _typed_schema(text: str) -> str:
    """Return a preset's schema to be kept; InvalidOption if it cannot be enforced."""
    return read_schema(text).typed if text.strip() else ""


def _check_name(name: str) -> None:
    if not harmless(name).strip():
        raise InvalidOption("A preset needs a name.")

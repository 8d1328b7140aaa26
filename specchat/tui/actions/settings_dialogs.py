"""The settings dialogs: they edit the settings file and keep the user's comments in it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from specchat.errors import SpecchatError
from specchat.options.option import Option
from specchat.settings.editor import write_setting
from specchat.settings.schema import find_setting
from specchat.settings.sources import Settings, read_settings
from specchat.tui.actions.think_switch import NUMBER, thinking_words
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.house_theme import HOUSE
from specchat.tui.main_view import MainView
from specchat.tui.screens.dialogs import (
    ChoiceScreen,
    LineScreen,
    ListEntry,
    TextScreen,
)
from specchat.tui.texts.setting_names import setting_group, setting_title, settings_in_order
from specchat.tui.widgets.filter_input import SettingsLine

DEFAULT, FORGETS = "default", "removes the line from the file"
THEME = "screen.theme"
SWITCHED_ON, SWITCHED_OFF = "━━● on", "●── off"
THINK = "chat.think"
PROMPT = "chat.system_prompt"
"""The one setting whose value may have several lines."""


@dataclass(frozen=True, slots=True)
class SettingsDialogs:
    """Lets the user change settings, and applies them to the running chat where possible."""

    view: MainView
    state: ChatState

    async def change(self, marked: str | None = None) -> None:
        """Change settings until the list is closed; the cursor is on the marked one first."""
        while True:
            settings = read_settings()
            choices = [self._entry(each, settings[each.name]) for each in settings_in_order()]
            title, line = f"Settings in {settings.path}", SettingsLine()
            screen = ChoiceScreen(title, choices, marked=marked, line=line)
            marked = await self.view.app.push_screen_wait(screen)
            if marked is None:
                return
            await self.change_one(find_setting(marked), settings)

    async def choose_theme(self) -> None:
        """Choose a theme, and store it."""
        await self.change_one(find_setting(THEME), read_settings())

    async def change_one(self, setting: Option, settings: Settings) -> None:
        """Toggle a boolean, offer the choices, or ask for a value; empty restores the default."""
        value = settings[setting.name]
        if setting.main_type is bool:
            text: str | None = "false" if value else "true"
        else:
            text = await self._ask(setting, value)
        if text is None:
            return
        text = text.strip()
        try:
            value = setting.parsed(text) if text else setting.default
            written = setting.write(value) if text else None
            await asyncio.to_thread(write_setting, settings.path, setting.name, written)
        except SpecchatError as error:
            self.view.report(error)
            return
        self._apply(setting, value)
        title = setting_title(setting)
        done = f"Saved {title}" if text else f"{title} is the default again"
        self.view.notify(f"{done}: {_shown(setting, value)} ({settings.path.name}).")

    async def _ask(self, setting: Option, value: Any) -> str | None:
        """Return the new value as text: empty for the default, None for no change."""
        title = f"{setting_title(setting)}\n{setting.help}"
        words = setting.words if setting.is_choice else ()
        if setting.name == THEME:
            return await self._choose_theme(setting, value)
        if setting.name == THINK:
            words = thinking_words(self.state.pair_controller.facts)
            words = () if NUMBER in words else words
        if words:
            screen = ChoiceScreen(title, _choices(words), marked=setting.shown(value))
            return await self.view.app.push_screen_wait(screen)

        def check(text: str) -> None:
            if text.strip():
                setting.parsed(text.strip())

        rule = f"{title}\n{setting.description}; leave empty for the default"
        kind = TextScreen if setting.name == PROMPT else LineScreen
        return await self.view.app.push_screen_wait(kind(rule, setting.shown(value), check))

    async def _choose_theme(self, setting: Option, value: Any) -> str | None:
        """Return a theme as `_ask` does; the one under the cursor shows until one is chosen."""
        app = self.view.app
        before = app.theme

        def preview(name: str) -> None:
            app.theme = name or str(setting.default)

        house = [theme.name for theme in HOUSE]
        others = sorted(set(app.available_themes) - set(house))
        themes = _choices([*house, *others])
        screen = ChoiceScreen(
            setting_title(setting), themes, marked=setting.shown(value), preview=preview
        )
        chosen = await app.push_screen_wait(screen)
        if chosen is None:
            app.theme = before
        return chosen

    def _apply(self, setting: Option, value: Any) -> None:
        name = setting.name
        if setting.table in {"sampling", "decoding"} or name == THINK:
            self.state.options.changed[setting.key] = value
            self.view.show_state()
        elif name == PROMPT:
            self.state.conversations.use_default_prompt(str(value or ""))
            self.view.show_state()
        elif name == THEME and value in self.view.app.available_themes:
            self.view.app.theme = str(value)
        elif name == "screen.colour_tokens" and self.view.appearance.shows_origins != value:
            self.view.appearance.toggle_origins()
        elif name == "screen.ghost":
            self.state.answers.ghosts.turn(is_on=value)
        elif name == "chat.unload_after":
            self.state.idle.minutes = value
        elif name == "chat.repeat_limit":
            self.state.answers.repeat_limit = value
        elif name == "screen.offer_race":
            self.state.race_offer.turn(is_on=value)
            self.view.show_hint()
        elif name == "screen.statistics":
            self.view.want_panel(wants=value)

    def _entry(self, setting: Option, value: object) -> ListEntry:
        """Return the list entry of a setting; a changed one is marked and shows its default.

        Where the model, the command line or a preset asks for something else, it says what holds.
        """
        help_text, is_changed = setting.help, value != setting.default
        if is_changed:
            help_text += f" Default: {_shown(setting, setting.default)}"
        held = self.state.options.current.get(setting.key, value)
        if setting.table == "sampling" and held != value:
            help_text += f" In this chat: {_shown(setting, held)}"
        shown = _shown(setting, value)
        if isinstance(value, bool):
            shown = SWITCHED_ON if value else SWITCHED_OFF
        mark, group = "•" if is_changed else " ", setting_group(setting)
        return ListEntry(setting.name, setting_title(setting), help_text, group, shown, mark)


def _choices(words: Iterable[str]) -> list[ListEntry]:
    """Return the entries for the values of a setting, the last of which restores the default."""
    return [*(ListEntry(word, word) for word in words), ListEntry("", DEFAULT, FORGETS)]


def _shown(setting: Option, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return setting.shown(value) or "not set"

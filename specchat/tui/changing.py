"""Settings: changing one after the other, in the file that also holds the user's comments."""

from __future__ import annotations

from pathlib import Path

from textual import work

from specchat.errors import InvalidOption, SpecchatError
from specchat.options import Option
from specchat.settings import (
    SETTINGS,
    Settings,
    find_setting,
    read_settings,
    write_setting,
)
from specchat.tui.keeping import Keeping
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, TextScreen

__all__ = ["Changing"]

BUILT_IN = "built in"
THEME = "screen.theme"
PROMPT = "chat.system_prompt"
"""The one setting whose value may have several lines."""


class Changing(Keeping):
    """Commands for settings."""

    @work
    async def action_settings(self) -> None:
        """Change settings until the list is closed."""
        marked: str | None = None
        while True:
            try:
                settings = read_settings()
            except SpecchatError as error:
                self.notify(str(error), severity="error", timeout=15)
                return
            marked = await self.push_screen_wait(_list(settings, marked))
            if marked is None:
                return
            await self._change(find_setting(marked), settings)

    async def _change(self, setting: Option, settings: Settings) -> None:
        """Turn a switch over, offer what there is to choose from, or let the user write."""
        value = settings[setting.name]
        if setting.main_type is bool:
            self._keep(setting, "false" if value else "true", settings.path)
            return
        words = self._words(setting)
        title = f"{setting.name}: {setting.help}"
        text: str | None
        if words:
            choices = [Choice(word, word) for word in words]
            choices.append(Choice("", BUILT_IN, "as without the line in the file"))
            text = await self.push_screen_wait(
                ChoiceScreen(title, choices, marked=setting.shown(value))
            )
        else:
            rule = f"{title}\n{setting.description}; leave empty for the default"
            shown = setting.shown(value)
            kind = TextScreen if setting.name == PROMPT else LineScreen
            screen = kind(rule, shown, lambda text: _wrong(setting, text.strip()))
            text = await self.push_screen_wait(screen)
        if text is not None:
            self._keep(setting, text.strip(), settings.path)

    def _words(self, setting: Option) -> tuple[str, ...]:
        """Return what there is to choose from, empty where anything may be written."""
        if setting.name == THEME:
            return tuple(sorted(self.available_themes))
        return setting.words if setting.is_choice else ()

    def _keep(self, setting: Option, text: str, path: Path) -> None:
        """Write a setting that was found right, and follow it where that can be done at once."""
        value = setting.parsed(text) if text else setting.default
        try:
            write_setting(path, setting.name, setting.write(value) if text else None)
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=15)
            return
        self._follow(setting, value)
        self.notify(f"{setting.name} is kept in {path.name}.")

    def _follow(self, setting: Option, value: object) -> None:
        """Do at once what a setting says: the next answer is sampled by it."""
        name = setting.name
        if setting.table in {"sampling", "decoding"}:
            self._changed[setting.key] = value
        if name == PROMPT:
            self._conversing.usual_prompt = str(value or "")
            if self._conversing.conversation is None:
                self._conversing.system_prompt = self._conversing.usual_prompt
                self._show_top()
        if name == THEME and value in self.available_themes:
            self.theme = str(value)
        if name == "screen.colour_tokens" and self._shows_origins != value:
            self.action_origins()
        if name == "screen.statistics" and self._panel_wanted != value:
            self.action_statistics()


def _list(settings: Settings, marked: str | None) -> ChoiceScreen:
    """Return the list of all settings and what they are."""
    choices = [
        Choice(each.name, f"{each.name} = {_shown(each, settings[each.name])}", each.help)
        for each in SETTINGS
    ]
    return ChoiceScreen(f"Settings in {settings.path}", choices, marked=marked)


def _shown(setting: Option, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return setting.shown(value)


def _wrong(setting: Option, text: str) -> str:
    """Say why a text is no value of a setting, empty where it is one or takes it away."""
    try:
        if text:
            setting.parsed(text)
    except InvalidOption:
        return f"{setting.name} must be {setting.description}."
    return ""

"""The settings dialogs: changing settings in the file, which also holds the user's comments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from specchat.errors import InvalidOption, SpecchatError
from specchat.options import Option
from specchat.settings import (
    SETTINGS,
    Settings,
    find_setting,
    read_settings,
    write_setting,
)
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, TextScreen

__all__ = ["PROMPT", "THEME", "change_setting", "change_settings"]

DEFAULT = "default"
THEME = "screen.theme"
PROMPT = "chat.system_prompt"
"""The one setting whose value may have several lines."""

Follow = Callable[[Option, Any], None]
"""Applies a changed setting to the running chat."""


async def change_settings(app: App[None], follow: Follow) -> None:
    """Change settings until the list is closed."""
    marked: str | None = None
    while True:
        try:
            settings = read_settings()
        except SpecchatError as error:
            app.notify(str(error), severity="error", timeout=15)
            return
        marked = await app.push_screen_wait(_list(settings, marked))
        if marked is None:
            return
        await change_setting(app, find_setting(marked), settings, follow)


async def change_setting(
    app: App[None], setting: Option, settings: Settings, follow: Follow
) -> None:
    """Flip a switch, offer the choices, or let the user type a value; then save it."""
    value = settings[setting.name]
    if setting.main_type is bool:
        text: str | None = "false" if value else "true"
    else:
        text = await _ask(app, setting, value)
    if text is None:
        return
    try:
        follow(setting, _save(app, setting, text.strip(), settings.path))
    except SpecchatError as error:
        app.notify(str(error), severity="error", timeout=15)


async def _ask(app: App[None], setting: Option, value: Any) -> str | None:
    """Return the new value as text: empty for the default, None for no change."""
    title = f"{setting.name}: {setting.help}"
    words = setting.words if setting.is_choice else ()
    if setting.name == THEME:
        words = tuple(sorted(app.available_themes))
    if words:
        choices = [Choice(word, word) for word in words]
        choices.append(Choice("", DEFAULT, "removes the line from the file"))
        return await app.push_screen_wait(ChoiceScreen(title, choices, marked=setting.shown(value)))
    rule = f"{title}\n{setting.description}; leave empty for the default"
    kind = TextScreen if setting.name == PROMPT else LineScreen

    def check(text: str) -> str:
        return _error(setting, text.strip())

    return await app.push_screen_wait(kind(rule, setting.shown(value), check))


def _save(app: App[None], setting: Option, text: str, path: Path) -> Any:
    """Write a valid setting into the file and return its value; empty text restores the default."""
    value = setting.parsed(text) if text else setting.default
    write_setting(path, setting.name, setting.write(value) if text else None)
    app.notify(f"Saved {setting.name} in {path.name}.")
    return value


def _list(settings: Settings, marked: str | None) -> ChoiceScreen:
    choices = [
        Choice(each.name, f"{each.name} = {_shown(each, settings[each.name])}", each.help)
        for each in SETTINGS
    ]
    return ChoiceScreen(f"Settings in {settings.path}", choices, marked=marked)


def _shown(setting: Option, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return setting.shown(value)


def _error(setting: Option, text: str) -> str:
    """Return why a text is not a valid value, empty if it is or if it is empty."""
    try:
        if text:
            setting.parsed(text)
    except InvalidOption:
        return f"{setting.name} must be {setting.description}."
    return ""

"""The presets dialogs: using, creating, editing and deleting presets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual.app import App

from specchat.chat.safe_text import harmless
from specchat.chat.store import Preset, Store
from specchat.errors import InvalidOption
from specchat.tui.sampling_text import in_line, in_lines, read_sampling
from specchat.tui.screens.dialogs import ChoiceScreen, LineScreen, ListEntry, TextScreen

NEW = "new"
SAMPLING_TITLE = (
    "Sampling options of {}\nOne per line, such as temperature = 0.7; others keep their defaults"
)


async def choose_preset(
    app: App[None], store: Store, system_prompt: str, sampling: Mapping[str, Any]
) -> Preset | None:
    """Return the preset to use from now on, None for no change.

    A new preset starts with the system prompt and the sampling options given.
    """
    presets = {f"preset {each.name}": each for each in store.presets()}
    new = ListEntry(NEW, "New preset", "from this system prompt and sampling")
    listed = [
        ListEntry(key, each.name, f"{in_line(each.sampling)} {each.system_prompt}".strip())
        for key, each in presets.items()
    ]
    chosen = await app.push_screen_wait(ChoiceScreen("Presets", [*listed, new]))
    if chosen == NEW:
        return await _create(app, store, system_prompt, sampling)
    return await _act_on(app, store, presets[chosen]) if chosen else None


async def _act_on(app: App[None], store: Store, preset: Preset) -> Preset | None:
    """Ask what to do with a preset, and do it."""
    choices = [
        ListEntry("use", "Use", "in this conversation, from now on"),
        ListEntry("change", "Edit", "its system prompt and its sampling"),
        ListEntry("delete", "Delete"),
    ]
    chosen = await app.push_screen_wait(ChoiceScreen(f"Preset {preset.name}", choices))
    if chosen == "change":
        return await _edit(app, store, preset)
    if chosen == "delete":
        store.delete_preset(preset.name)
        app.notify(f"Deleted preset {preset.name}.")
    return preset if chosen == "use" else None


async def _create(
    app: App[None], store: Store, system_prompt: str, sampling: Mapping[str, Any]
) -> Preset | None:
    name = await app.push_screen_wait(LineScreen("Name of the preset", check=_check_name))
    name = " ".join(harmless(name or "").split())
    return await _edit(app, store, Preset(name, system_prompt, dict(sampling))) if name else None


async def _edit(app: App[None], store: Store, preset: Preset) -> Preset | None:
    """Ask for both parts of a preset and save it; cancelling either changes nothing."""
    title = f"System prompt of {preset.name}"
    prompt = await app.push_screen_wait(TextScreen(title, harmless(preset.system_prompt)))
    if prompt is None:
        return None
    title = SAMPLING_TITLE.format(preset.name)
    text = await app.push_screen_wait(TextScreen(title, in_lines(preset.sampling), read_sampling))
    if text is None:
        return None
    edited = replace(preset, system_prompt=prompt.strip(), sampling=read_sampling(text))
    store.save_preset(edited)
    return edited


def _check_name(name: str) -> None:
    if not harmless(name).strip():
        raise InvalidOption("A preset needs a name.")

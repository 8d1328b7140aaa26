"""Presets: a name for a system prompt and for how to sample; made, used, changed and deleted."""

from __future__ import annotations

from dataclasses import replace

from textual import work

from specchat.chat.safe_text import harmless
from specchat.chat.store import Preset
from specchat.errors import InvalidOption
from specchat.tui.reading import Reading
from specchat.tui.sampling_text import in_line, in_lines, read_sampling
from specchat.tui.screens.dialogs import Choice, ChoiceScreen, LineScreen, TextScreen

__all__ = ["Presets"]

NEW = "new"
TOLD = "Sampling of {}: temperature = 0.7, a line each; what is left out stays as it is"


class Presets(Reading):
    """Commands for presets."""

    @work
    async def action_presets(self) -> None:
        """Choose a preset to do something with, or make one."""
        presets = {f"preset {each.name}": each for each in self._store.presets()}
        make = Choice(NEW, "Make a preset", "of this system prompt and sampling")
        kept = [
            Choice(key, each.name, f"{in_line(each.sampling)} {each.system_prompt}".strip())
            for key, each in presets.items()
        ]
        chosen = await self.push_screen_wait(ChoiceScreen("Presets", [*kept, make]))
        if chosen == NEW:
            await self._make_preset()
        elif chosen:
            await self._do_with(presets[chosen])

    async def _do_with(self, preset: Preset) -> None:
        """Ask what is to be done with a preset, and do it."""
        choices = [
            Choice("use", "Use it", "from now on, in this conversation"),
            Choice("change", "Change it", "its system prompt and its sampling"),
            Choice("delete", "Delete it"),
        ]
        chosen = await self.push_screen_wait(ChoiceScreen(f"Preset {preset.name}", choices))
        if chosen == "use":
            self._use_preset(preset)
        elif chosen == "change":
            await self._change_preset(preset)
        elif chosen == "delete":
            self._store.delete_preset(preset.name)
            self.notify(f"{preset.name} is deleted.")

    async def _make_preset(self) -> None:
        """Make a preset of what is chosen in this chat; the command line's part is not in it."""
        name = await self.push_screen_wait(LineScreen("Name of the preset", check=_nameless))
        name = " ".join(harmless(name or "").split())
        if name:
            sampling = {**self._changed, **(self._preset.sampling if self._preset else {})}
            await self._change_preset(Preset(name, self._conversing.system_prompt, sampling))

    async def _change_preset(self, preset: Preset) -> None:
        """Have both its parts written, and keep it; leaving either leaves it as it was."""
        title = f"System prompt of {preset.name}"
        prompt = await self.push_screen_wait(TextScreen(title, harmless(preset.system_prompt)))
        if prompt is None:
            return
        told = TOLD.format(preset.name)
        text = await self.push_screen_wait(TextScreen(told, in_lines(preset.sampling), _wrong))
        if text is not None:
            changed = replace(preset, system_prompt=prompt.strip(), sampling=read_sampling(text))
            self._store.keep_preset(changed)
            self._use_preset(changed)

    def _use_preset(self, preset: Preset) -> None:
        """Ask with a preset from now on, in this conversation."""
        self._conversing.use_preset(preset)
        self._preset = preset
        self._show_top()
        self.notify(f"{preset.name} from now on, in this conversation.")


def _nameless(name: str) -> str:
    """Say that a text is no name, empty where it is one."""
    return "" if harmless(name).strip() else "A preset needs a name."


def _wrong(sampling: str) -> str:
    """Say why a text is no sampling, empty where it is."""
    try:
        read_sampling(sampling)
    except InvalidOption as error:
        return str(error)
    return ""

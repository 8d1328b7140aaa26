"""Presets: a name for a system prompt and for how to sample; made, used, changed and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from textual import work

from specchat.chat.display import harmless
from specchat.chat.store import Preset
from specchat.errors import InvalidOption
from specchat.settings import SETTINGS, Setting, find_setting
from specchat.tui.dialogs import Choice, ChoiceScreen, TextScreen
from specchat.tui.reading import Reading

__all__ = ["Presets", "option_of"]

NEW = "new"
SAMPLING = frozenset(setting.key for setting in SETTINGS if setting.table == "sampling")
TOLD = "Sampling of {}: temperature = 0.7, a line each; what is left out stays as it is"


class Presets(Reading):
    """Commands for presets."""

    @work
    async def action_presets(self) -> None:
        """Choose a preset to do something with, or make one."""
        presets = {f"preset {each.name}": each for each in self._store.presets()}
        make = Choice(NEW, "Make a preset", "of this system prompt and sampling")
        kept = [
            Choice(key, each.name, f"{_in_line(each.sampling)} {each.system_prompt}".strip())
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
        name = await self.push_screen_wait(TextScreen("Name of the preset"))
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
        text: str | None = _in_lines(preset.sampling)
        while text is not None:
            text = await self.push_screen_wait(TextScreen(TOLD.format(preset.name), text))
            try:
                sampling = _read_sampling(text or "")
            except InvalidOption as error:
                self.notify(str(error), severity="error")
                continue
            if text is not None:
                changed = replace(preset, system_prompt=prompt.strip(), sampling=sampling)
                self._store.keep_preset(changed)
                self._use_preset(changed)
            return

    def _use_preset(self, preset: Preset) -> None:
        """Ask with a preset from now on, in this conversation."""
        self._conversing.set_system_prompt(preset.system_prompt)
        self._preset = replace(preset, sampling=_only_sampling(preset.sampling))
        self._show_top()
        self.notify(f"{preset.name} from now on, in this conversation.")


def option_of(setting: Setting, value: object) -> object:
    """Return a setting as the engine takes it, which knows the words for no number as None."""
    return None if setting.table == "sampling" and isinstance(value, str) else value


def _only_sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling among options: older presets held whatever the command line gave."""
    return {name: value for name, value in options.items() if name in SAMPLING}


def _in_lines(sampling: Mapping[str, Any]) -> str:
    """Return sampling as it is written and read."""
    return "\n".join(
        f"{name} = {_word(name) if value is None else value}"
        for name, value in _only_sampling(sampling).items()
    )


def _in_line(sampling: Mapping[str, Any]) -> str:
    return _in_lines(sampling).replace("\n", ", ").replace(" = ", " ")


def _word(name: str) -> object:
    """Return the word that stands for no number."""
    return find_setting(f"sampling.{name}").default


def _read_sampling(text: str) -> dict[str, Any]:
    """Read what is written; InvalidOption says what is wrong."""
    sampling: dict[str, Any] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, written = (part.strip() for part in line.partition("="))
        setting = find_setting(f"sampling.{name}")
        try:
            value = setting.kind.read(written)
        except ValueError:
            raise InvalidOption(f"{name} must be {setting.kind.rule}, not {written}") from None
        setting.require(value)
        sampling[name] = option_of(setting, value)
    return sampling

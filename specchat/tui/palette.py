"""The command palette, which searches the titles and the help texts of commands."""

import re

from textual.command import DiscoveryHit, Hit, Hits
from textual.system_commands import SystemCommandsProvider

from specchat.tui.commands import SEPARATOR

HELP_SCORE = 0.01
"""Ranks matches in the help text below all matches in the title."""
SLASH_SCORE = 100.0
"""Ranks the command of a slash word above all others."""


class PaletteProvider(SystemCommandsProvider):
    """Finds the app's commands; their help text includes their slash commands."""

    async def discover(self) -> Hits:
        """Yield all commands in the app's order, the ones used most first."""
        for title, words, call, is_listed in self.app.get_system_commands(self.screen):
            if is_listed:
                yield DiscoveryHit(title, call, help=words)

    async def search(self, query: str) -> Hits:
        """Yield commands whose titles match, then those with words that start like the query's."""
        matcher = self.matcher(query.removeprefix("/"))
        wanted = re.findall(r"\w+", query.lower())
        for title, words, call, _ in self.app.get_system_commands(self.screen):
            known = re.findall(r"\w+", f"{title} {words}".lower())
            if query in words.split(SEPARATOR):
                yield Hit(SLASH_SCORE, title, call, help=words)
            elif score := matcher.match(title):
                yield Hit(score, matcher.highlight(title), call, help=words)
            elif wanted and all(any(each.startswith(word) for each in known) for word in wanted):
                yield Hit(HELP_SCORE, title, call, help=words)

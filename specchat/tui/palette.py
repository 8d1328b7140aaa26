"""The command palette, which finds commands by their titles and by the words of their help."""

import re

from textual.command import Hit, Hits
from textual.system_commands import SystemCommandsProvider

HELP_SCORE = 0.01
"""What is found by its help comes after all that is found by its title."""


class PaletteProvider(SystemCommandsProvider):
    """Finds the commands of the app, whose help names their slash words too."""

    async def search(self, query: str) -> Hits:
        """Yield what has the query in its title, then what has its words, or their beginnings."""
        matcher = self.matcher(query.removeprefix("/"))
        wanted = re.findall(r"\w+", query.lower())
        for title, words, call, _ in self.app.get_system_commands(self.screen):
            known = re.findall(r"\w+", f"{title} {words}".lower())
            if score := matcher.match(title):
                yield Hit(score, matcher.highlight(title), call, help=words)
            elif wanted and all(any(each.startswith(word) for each in known) for word in wanted):
                yield Hit(HELP_SCORE, title, call, help=words)

"""Commands written in the composer after a slash, and the screens they lead to."""

from __future__ import annotations

from textual import on

from specchat.tui.following import Following
from specchat.tui.screens.statistics_screen import AnswersScreen
from specchat.tui.slash import find_slash
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.suggestions import Suggestions

__all__ = ["Commanding"]


class Commanding(Following):
    """Does what is written after a slash."""

    @on(Composer.Changed)
    def _composer_changed(self, event: Composer.Changed) -> None:
        """List the commands that the text may become."""
        if isinstance(event.text_area, Composer):
            self.query_one(Suggestions).follow(event.text_area.first_line)

    @on(Suggestions.Taken)
    async def _suggestion_taken(self, event: Suggestions.Taken) -> None:
        """Do what was clicked."""
        self.query_one(Composer).text = ""
        await self._command(f"/{event.name}")

    @on(Composer.Commanded)
    async def _commanded(self, event: Composer.Commanded) -> None:
        await self._command(event.text)

    async def _command(self, text: str) -> None:
        """Do what a command says; a wrong one is told of and can be mended."""
        try:
            slash, given = find_slash(text)
        except ValueError as error:
            composer = self.query_one(Composer)
            composer.text = text
            composer.move_cursor(composer.document.end)
            self.notify(str(error), severity="warning")
            return
        await self.run_action(f"{slash.action}({given!r})" if given else slash.action)

    def action_answers(self) -> None:
        """Show the statistics of the answers of this conversation."""
        branch = self._conversing.branch
        if any(message.statistics.get("generated_tokens") for message in branch):
            self.push_screen(AnswersScreen(branch))
        else:
            self.notify("There are no statistics yet: they come with the first answer.")

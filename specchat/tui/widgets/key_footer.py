"""The keys at the bottom of a screen."""

from textual.widgets import Footer


class KeyFooter(Footer):
    """A footer that stays as it is while a dialog covers its screen.

    Textual composes a footer again as its screen is covered, but lays out only the screen in front:
    the keys behind the dialog would disappear.
    """

    async def recompose(self) -> None:
        """Show the keys of this moment, unless the screen is covered or gone."""
        if self.is_attached and self.screen is self.app.screen:
            await super().recompose()

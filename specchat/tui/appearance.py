"""How the chat looks: its theme, and the tints of tokens by their origin."""

from collections.abc import Callable

from rich.text import Text
from textual.app import App
from textual.widgets import Static

from specchat.drafter_registry import origins
from specchat.safe_text import harmless
from specchat.tui.house_theme import readable_theme
from specchat.tui.markdown.typesetter import Typesetter, colours_of
from specchat.tui.setup import Setup
from specchat.tui.texts.figures import Figures
from specchat.tui.widgets.message_views import AnswerView
from specchat.tui.widgets.transcript import Transcript


class Appearance:
    """Styles the views of messages by the theme, and tints their tokens if that is wanted."""

    def __init__(self, app: App[None], setup: Setup, figures: Callable[[], Figures]) -> None:
        """Start with the settings; `figures` returns those that are shown."""
        self.shows_origins = setup.screen.colour_tokens
        """Whether tokens are tinted by their origin."""
        self._app = app
        self._setup = setup
        self._figures = figures
        self._typesetter = Typesetter(app.theme_variables)

    def answer_view(self) -> AnswerView:
        """Return an empty view of an answer."""
        folds = self._setup.screen.fold_reasoning
        return AnswerView(self._typesetter, shows_origins=self.shows_origins, folds=folds)

    def restyle(self) -> None:
        """Follow the theme."""
        has_colours = colours_of(self._app) not in {None, "standard"}
        self._typesetter = Typesetter(self._app.theme_variables, has_colours=has_colours)
        for view in self._app.query_one(Transcript).views:
            view.restyle(self._typesetter)
        self.show_legend()

    def toggle_origins(self) -> None:
        """Turn the tinting of tokens by origin on or off."""
        self.shows_origins = not self.shows_origins
        for view in self._app.query_one(Transcript).query(AnswerView):
            view.show_origins(self.shows_origins)
        self.show_legend()

    def has_colours(self) -> bool:
        """Return whether the terminal has any colours."""
        return colours_of(self._app) is not None

    def show_legend(self) -> None:
        """Name the colours of the origins that the answer with the shown figures has, or of all."""
        legend = self._app.query_one("#legend", Static)
        legend.display = self.shows_origins
        if not self.shows_origins:
            return
        figures = self._figures()
        found = [each for each in origins() if figures.origins[each.name]] or origins()
        labels = [Text(each.label, self._typesetter.origin_style(each.name)) for each in found]
        if (server := figures.statistics.served_by) and not figures.origins:
            labels = [Text(f"{harmless(server)} does not report where its tokens come from", "dim")]
        hides = Text(f" {self._setup.key_of('origins')} hides", "dim")
        words = Text("  ").join([*labels, hides])
        if words != legend.content:
            legend.update(words)

    def choose_theme(self, wanted: str | None) -> None:
        """Use the theme of the settings, adapted to the colours of the terminal."""
        if wanted in self._app.available_themes:
            colours = colours_of(self._app)
            is_picture = self._app.is_headless and colours is not None
            theme = self._app.available_themes[wanted]
            self._app.theme = readable_theme(theme, "truecolor" if is_picture else colours)
        elif wanted:
            self._app.notify(f"Unknown theme {wanted}. /theme lists all.")

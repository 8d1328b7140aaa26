"""Moving about on the main screen: the focus, scrolling, and what lies beside or over the chat."""

from textual.app import App
from textual.screen import ModalScreen
from textual.widget import Widget

from specchat.tui.arrangement import Arrangement
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.widgets.composer import Composer
from specchat.tui.widgets.message_views import MessageView
from specchat.tui.widgets.panel import Panel
from specchat.tui.widgets.sidebar import Sidebar
from specchat.tui.widgets.transcript import Transcript
from specchat.tui.widgets.welcome import Welcome


class Navigation:
    """Moves the focus and scrolls; opens and closes the panel and the list of conversations."""

    def __init__(self, app: App[None], view: ChatView, arrangement: Arrangement) -> None:
        self._app = app
        self._view = view  # draws anew what depends on the room
        self._arrangement = arrangement

    async def reveal(
        self, message: int | None, *, unfolds: bool = False, arms: bool = False
    ) -> None:
        """Scroll to a message and focus it; its reasoning and files may be unfolded."""
        if message is None:
            return
        view = await self._app.query_one(Transcript).reveal(message)
        if view is not None:
            view.focus(scroll_visible=False)
            view.is_armed = arms
            if unfolds:
                view.unfold()

    def write(self) -> None:
        """Focus the composer before the next key, which may wait already."""
        composer = self._app.query_one(Composer)
        composer.screen.set_focus(composer)

    def toggle_panel(self) -> None:
        """Show or hide the stats panel; over the chat it replaces the list of conversations."""
        panel, sidebar = self._app.query_one(Panel), self._app.query_one(Sidebar)
        self._arrangement.toggle_panel()
        if panel.has_focus or (sidebar.has_focus_within and not sidebar.display):
            self._app.query_one(Composer).focus()
        self._view.show_state()
        if panel.display and panel.has_class("-over"):
            panel.focus()

    def toggle_conversations(self) -> None:
        """Show or hide the list of conversations."""
        sidebar = self._app.query_one(Sidebar)
        self._arrangement.toggle_list()
        self._view.show_state()
        self._view.show_conversations()
        (sidebar if sidebar.display else self._app.query_one(Composer)).focus()

    async def follow_newest(self) -> None:
        """Scroll to the newest message."""
        await self._app.query_one(Transcript).follow()

    def scroll_page(self, step: int) -> None:
        """Scroll the conversation by a page, up (-1) or down (1)."""
        transcript = self._app.query_one(Transcript)
        scroll = transcript.scroll_page_up, transcript.scroll_page_down
        scroll[step > 0](animate=False)

    def step_focus(self, step: int) -> None:
        """Move the focus by a number of messages; the composer comes after the last one."""
        views: list[Widget] = [*self._app.query_one(Transcript).views]
        stops = [*(views or self._app.query("Welcome > OptionList")), self._app.query_one(Composer)]
        if self._app.focused in stops:
            stop = stops[max(0, stops.index(self._app.focused) + step)]
            stop.arm() if isinstance(stop, MessageView) else stop.focus()

    def focus_for_typing(self) -> None:
        """Focus the composer for a text that nothing else takes, as after a click or a search."""
        app = self._app
        if not app.screen_stack or isinstance(app.screen, ModalScreen):
            return
        focused = app.focused
        is_free = focused is None or isinstance(focused.parent, Welcome)  # its list takes no text
        is_free = is_free or (isinstance(focused, MessageView) and not focused.is_armed)
        composer = app.screen.query_one_optional(Composer)  # none before the first screen
        if is_free and composer is not None:
            app.screen.set_focus(composer)

    def uncover(self) -> None:
        """Hide the list of conversations or the panel if it covers the conversation."""
        for cover in self._app.query("#middle > .-over"):
            if cover.display:
                (self.toggle_panel if isinstance(cover, Panel) else self.toggle_conversations)()

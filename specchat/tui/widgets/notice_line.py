"""The newest notice, in lines of its own: on the main screen it covers nothing."""

from textual.notifications import Notification
from textual.widgets import Static


class NoticeLine(Static):
    """The newest of the app's notices, until it expires; a click removes it."""

    def __init__(self) -> None:
        super().__init__(id="notice", markup=False)
        self.display = False

    def show(self, notice: Notification | None) -> None:
        """Show a notice; None hides the line."""
        self.display = notice is not None
        if notice is None:
            return
        title = f"{notice.title}: " if notice.title else ""
        self.update(title + notice.message)
        for severity in ("warning", "error"):
            self.set_class(notice.severity == severity, f"-{severity}")

    def on_click(self) -> None:
        """Remove all notices."""
        self.app.clear_notifications()

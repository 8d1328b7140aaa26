"""The heading of a group of lines in a list."""

from rich.text import Text
from textual.widgets.option_list import Option


def group_heading(name: str, *, is_first: bool) -> Option:
    """Return a line that cannot be chosen, below an empty one unless it is the first."""
    return Option(Text(name if is_first else f"\n{name}"), disabled=True)

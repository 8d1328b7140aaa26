"""A list in groups, each under a heading."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option


class GroupedList(OptionList):
    """An option list with headings for groups, and an empty line between these if it `has_gaps`."""

    has_gaps = True

    def fill(
        self, lines: Iterable[tuple[str, Option]], *wanted: str | None, words: str = ""
    ) -> None:
        """Show lines, given with their groups, and highlight the first listed one of `wanted`.

        Without any of those, highlight the first line. The group "" has no heading. Without lines,
        say that the words searched for were not found.
        """
        options: list[Option] = []
        for group, members in groupby(lines, itemgetter(0)):
            if group:
                name = f"\n{group}" if options and self.has_gaps else group
                options.append(Option(Text(name), disabled=True))
            options += [option for _, option in members]
        if words and not options:
            options.append(Option(Text("Nothing found", "dim"), disabled=True))
        self.clear_options()
        self.add_options(options)
        listed = [each.id for each in options if not each.disabled]
        found = next((name for name in (*wanted, *listed) if name in listed), None)
        if found is not None:
            self.highlighted = self.get_option_index(str(found))


def has_words(text: str, words: str) -> bool:
    """Return True if a text contains each word, also as part of another, in any order and case."""
    return all(word in text.lower() for word in words.lower().split())

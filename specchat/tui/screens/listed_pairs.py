"""The pairs of the models screen: what is known of each, and the groups that it lists."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from specchat.catalogue.outlook import Outlook
from specchat.chat.answer_statistics import AnswerTotals
from specchat.hub.offline import is_offline
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.screens.model_rows import ModelRow
from specchat.tui.setup import Offer
from specchat.tui.widgets.grouped_list import has_words


class ListedPairs:
    """The rows of all pairs, by name."""

    def __init__(self, pulls: Pulls, in_use: str, measured: Mapping[str, AnswerTotals]) -> None:
        """Begin with no pair; `in_use` is the name of one, `measured` how fast they were here."""
        self._pulls, self._in_use, self._measured = pulls, in_use, measured
        self._rows: dict[str, ModelRow] = {}

    def __iter__(self) -> Iterator[ModelRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: str) -> ModelRow | None:
        """Return the row of a pair; None if there is no such pair."""
        return self._rows.get(name)

    def replace(self, offers: Iterable[Offer]) -> None:
        """List these pairs, with what was read of their files before."""
        self._rows = {offer.name: self._row(offer) for offer in offers}

    def complete(self, name: str, outlook: Outlook) -> None:
        """Note what was read of a pair's files."""
        self._rows[name] = replace(self._rows[name], outlook=outlook, is_read=True)

    def follow_pull(self, name: str) -> None:
        """Note how far the download of a pair is."""
        if name in self._rows:
            self._rows[name] = replace(self._rows[name], pull=self._pulls.latest.get(name))

    def unread(self) -> list[ModelRow]:
        """Return the pairs whose files were not read yet, those first that take no time."""
        in_order = [row for rows in self.groups("").values() for row in rows if not row.is_read]
        return sorted(in_order, key=lambda each: each.is_here)

    def with_siblings(self, row: ModelRow) -> ModelRow:
        """Return a row that knows the same model's other quantizations on this machine."""
        title = row.title.lower()
        others = [each for each in self if each is not row and each.is_here and each.offer.title]
        return replace(row, siblings=[each for each in others if each.title.lower() == title])

    def groups(self, words: str) -> dict[str, Sequence[ModelRow]]:
        """Return the pairs that contain the words, by the titles of their groups, in order."""
        rows = [row for row in self if has_words(row.searched, words)]
        here = [each for each in rows if each.is_here]
        recent = [each for each in here if each.offer.loaded or each.is_used]
        recent.sort(key=lambda each: (not each.is_used, -each.offer.loaded))
        others = [each for each in here if each not in recent and not each.offer.is_server]
        away = [each for each in rows if not each.is_here]
        return {
            "Recent": recent,
            "Servers": [each for each in here if each.offer.is_server and each not in recent],
            "Downloaded": _with_siblings_together(others),
            "To download (specchat is offline)" if is_offline() else "To download": sorted(
                away, key=lambda each: not each.offer.is_recommended
            ),
        }

    def _row(self, offer: Offer) -> ModelRow:
        before = self._rows.get(offer.name)
        is_same = before is not None and before.is_here == (offer.choose is not None)
        is_read = before is not None and before.is_read and is_same
        return ModelRow(
            offer,
            before.outlook if before and is_read else offer.outlook,
            is_read=is_read,
            is_used=offer.choose is not None and offer.name == self._in_use,
            pull=self._pulls.latest.get(offer.name),
            measured=self._measured.get(offer.name),
        )


def _with_siblings_together(rows: Sequence[ModelRow]) -> list[ModelRow]:
    """Return rows with the quantizations of a model one after the other, otherwise in order."""
    titles = [row.title.lower() for row in rows]
    return sorted(rows, key=lambda row: titles.index(row.title.lower()))

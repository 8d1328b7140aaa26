"""A place for one text in a pair's memory, with the drafters that know the text."""

from collections.abc import Mapping, Sequence

from specchat.decoding.ports import Drafter
from specchat.drafting.factory import Materials, make_drafter
from specchat.llama.draft_context import DraftContext
from specchat.llama.rollback import Rollback
from specchat.llama.text_memory import TextMemory


class TextPlace:
    """The memory of a text and that of its draft; `draft` is None without one.

    An answer may be in progress there. One that `is_unfinished` may go on later. The place was last
    used at the clock times `used` and, for the text before, `used_before`.
    """

    def __init__(self, number: int, context: TextMemory, draft: DraftContext | None) -> None:
        """Begin with an empty memory; `number` counts the places from 0."""
        self.number, self.context, self.draft = number, context, draft
        self.is_unfinished = False
        self.used = self.used_before = 0.0
        self.materials: Materials
        self._drafters: dict[str, Drafter] = {}

    @property
    def rollback_kinds(self) -> Sequence[Rollback]:
        """How tokens are removed from the memories."""
        kinds = [self.context.rollback_kind]
        return [*kinds, self.draft.rollback_kind] if self.draft else kinds

    @property
    def image_seconds(self) -> float:
        """The seconds that encoding images has taken so far, also for a draft model."""
        return self.context.image_seconds + (self.draft.image_seconds if self.draft else 0.0)

    @property
    def drafters(self) -> dict[str, Drafter]:
        """The drafters that know the text, by name."""
        return dict(self._drafters)

    def begin(self, at: float) -> None:
        """Note that the place is used for another text, or the same."""
        self.used_before, self.used = self.used, at

    def use(self, drafters: Mapping[str, Drafter]) -> None:
        """Continue with the drafters of a text that was restored."""
        self._drafters = dict(drafters)

    def drafter(self, name: str) -> Drafter:
        """Return the drafter of that name, which remembers the text."""
        if name not in self._drafters:
            self._drafters[name] = make_drafter(name, self.materials)
        return self._drafters[name]

    def close_drafters(self) -> None:
        """Close the drafters: what they are made from may change."""
        while self._drafters:
            self._drafters.popitem()[1].close()

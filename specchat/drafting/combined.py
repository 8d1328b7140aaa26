"""Combines two drafters, of which each step uses the one that promises more.

A passage from earlier text costs no pass, so it is looked up first. The draft model drafts instead
if it promises more, and continues where such a passage ends.
"""

from collections.abc import Callable, Generator, Sequence

from specchat.decoding.ports import Drafter, DraftTask, Pacer
from specchat.decoding.proposal import Branch, DraftToken
from specchat.drafting import draft_model, suffix
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials
from specchat.drafting.suffix import SuffixDrafter


class CombinedDrafter(Drafter):
    """The suffix drafter and the draft model: either alone, or the model after a passage."""

    def __init__(self, suffix: SuffixDrafter, model: DraftModelDrafter) -> None:
        self._suffix = suffix
        self._model = model

    @property
    def unfit_reason(self) -> str | None:
        """Why the draft model does not suit this target, None if it may."""
        return self._model.unfit_reason

    def begin(self, task: DraftTask) -> None:
        """Start a new answer with both."""
        self._walk = task.walk
        self._suffix.begin(task)
        self._model.begin(task)

    def reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        """Read the prompt with the draft model."""
        yield from self._model.reading(is_brief)

    def propose(self, pacer: Pacer) -> list[DraftToken]:
        """Propose a passage of the text unless the model promises more, then the model's tokens."""
        rival = None if self.unfit_reason else self._model.origin
        passage = self._suffix.propose(pacer, rival)
        del passage[self._walk.num_allowed([drafted.token for drafted in passage]) :]
        return passage + self._model.propose(pacer, [drafted.token for drafted in passage])

    def branches(self) -> Sequence[Branch]:
        """Return the branches of both drafters.

        The model's come second, so the branch numbers in their `behind` shift by the number of the
        others. Their forks stay as they are: the model counts the passage among the drafted tokens.
        """
        branches = list(self._suffix.branches())
        shift = len(branches)
        return branches + [
            branch._replace(behind=branch.behind + shift) if branch.behind >= 0 else branch
            for branch in self._model.branches()
        ]

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Update both."""
        self._suffix.observe(emitted, num_accepted)
        self._model.observe(emitted, num_accepted)


def make(materials: Materials) -> CombinedDrafter:
    """Return a drafter that combines suffix lookup and the draft model."""
    return CombinedDrafter(suffix.make(materials), draft_model.make(materials))

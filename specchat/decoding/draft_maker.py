"""Makes the draft of a step: what a drafter proposes and the constraint allows, with branches."""

from collections.abc import Callable, Generator, Sequence

from specchat.decoding.answer_transcript import AnswerTranscript
from specchat.decoding.distribution import Distribution
from specchat.decoding.draft_tree import (
    NOTHING,
    DraftTree,
    some_of,
    valid_branches,
    with_drawn,
)
from specchat.decoding.ports import Branching, Drafter, DraftTask, Pacer, ReadingDrafter
from specchat.decoding.proposal import DraftToken, forced_token
from specchat.decoding.request import Request
from specchat.errors import EngineFailed


class DraftMaker:
    """Makes the drafts of one answer."""

    def __init__(
        self, drafter: Drafter, request: Request, transcript: AnswerTranscript, pacer: Pacer
    ) -> None:
        """Draft for a transcript, as long as the pacer wants."""
        self._drafter, self._request, self._pacer = drafter, request, pacer
        self._branching = drafter if isinstance(drafter, Branching) else None
        self._transcript, self._walk = transcript, transcript.walk
        self._most_branches = 0

    def begin(self, most_branches: int) -> None:
        """Begin the drafter's answer; the target can read up to `most_branches` at once."""
        request, tokens, first = self._request, self._transcript.tokens, self._transcript.index
        self._most_branches = most_branches

        # a drafter counts from the first step, the noise of a seed from the answer's first token
        def draw(distribution: Distribution, index: int) -> int:
            return request.draw_draft(distribution, first + index)

        def ranked(
            distribution: Distribution, index: int, count: int
        ) -> Sequence[tuple[int, float]]:
            return request.ranked(distribution, first + index, count)

        self._drafter.begin(
            DraftTask(
                tokens,
                request.sampling,
                draw,
                is_soon=self._pacer.expects_drafting(len(tokens)),
                is_ever=request.draft_length > 0 and request.max_tokens != 1,
                is_replay=request.replay is not None,
                walk=self._walk,
                has_branches=most_branches > 0,
                ranked=ranked,
            )
        )

    def reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        """Let the drafter read the prompt, with pauses; passes are short while `is_brief`."""
        if isinstance(self._drafter, ReadingDrafter):
            yield from self._drafter.reading(is_brief)

    def make(self, limit: int, room: int) -> DraftTree:
        """Return a draft of up to `limit` tokens, with branches where there is `room` for more."""
        draft = self._drafter.propose(self._pacer)
        if draft:
            draft = self._extended(self._cut(draft), limit)
        most = min(min(self._request.most_nodes, room) - len(draft), self._most_branches)
        offered = self._branching.branches() if self._branching and most > 0 else ()
        if not offered:
            return DraftTree(draft) if draft else NOTHING
        branches = valid_branches(offered, draft, self._may_follow)
        branches = some_of(branches, self._pacer.choose_branches(draft, branches, most))
        if not (branches and self._request.draws_siblings):
            return DraftTree(draft, branches)
        return DraftTree(draft, *with_drawn(branches, draft, self._request.random))

    def _cut(self, draft: Sequence[DraftToken]) -> Sequence[DraftToken]:
        """Cut a draft before the first token that is not allowed, unless it was drawn.

        A drawn token must reach verification and be rejected there: only then is the correction
        drawn with the right probabilities.
        """
        length = self._walk.num_allowed([drafted.token for drafted in draft])
        is_certain = length < len(draft) and len(draft[length].distribution) == 1
        return draft[:length] if is_certain else draft

    def _extended(self, draft: Sequence[DraftToken], limit: int) -> Sequence[DraftToken]:
        """Append the tokens that must follow a draft, up to `limit` in all.

        They are accepted if the draft is, and the target's own token then comes after them. Without
        them, that token would be the first of them, which is bound to come anyway.
        """
        if not draft:
            return draft
        run = self._walk.forced_after([drafted.token for drafted in draft])
        return [*draft, *map(forced_token, run[: max(0, limit - len(draft))])]

    def _may_follow(self, drafted: Sequence[int], token: int) -> bool:
        """Return whether a token is allowed after these drafted ones, as far as is known."""
        try:
            mask = self._walk.mask_after(drafted)
        except EngineFailed:
            return False
        return mask is None or mask.allows(token)

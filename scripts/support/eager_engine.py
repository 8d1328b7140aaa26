"""An engine that drafts in shared passes whatever pays: what is checked with it are texts."""

from collections.abc import Generator, Sequence
from dataclasses import replace

from specchat.engine.local_engine import LocalEngine
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update

NUM_DRAFTED = 3


class EagerEngine(LocalEngine):
    """An engine that drafts as many tokens in each step of answers that share their passes."""

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Prepare answers; those that pacing would decide on draft as many as there may be."""
        return super().begin_together(
            [
                replace(each, draft_length=NUM_DRAFTED) if each.draft_length == "auto" else each
                for each in requests
            ]
        )

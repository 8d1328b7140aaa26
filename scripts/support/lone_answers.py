"""What requests are answered alone, and whether rounding explains another answer."""

from collections.abc import Sequence

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import CheckedSampling, Parting
from specchat.requests.answer_request import GenerateRequest

MOST_AT_ONCE = 4
"""The tokens of the longest passes that logits are compared for."""


class LoneAnswers:
    """The answers of an engine that nothing else is asked of, each in an empty memory."""

    def __init__(self, engine: LocalEngine) -> None:
        """Ask an engine, whose kernels for exact passes are known by then."""
        self._engine = engine
        self._known: dict[str, list[int]] = {}

    def tokens(self, request: GenerateRequest) -> list[int]:
        """Return the tokens of the answer to a request, whose prompt is given as tokens."""
        key = repr(request)
        if key not in self._known:
            self._engine.forget()
            updates = self._engine.begin(request)
            chunks = [chunk for update in updates for chunk in update.chunks]
            self._known[key] = [token for chunk in chunks for token in chunk.tokens]
        return self._known[key]

    def parting(
        self, request: GenerateRequest, wanted: Sequence[int], given: Sequence[int]
    ) -> Parting:
        """Return where another answer leaves the wanted one, and by how much there.

        Rounding is what the ways of reading the text differ by, with this text in memory alone.
        """
        pairs = list(zip(wanted, given, strict=False))
        index = next((n for n, (one, other) in enumerate(pairs) if one != other), len(pairs))
        if index == len(pairs):
            return Parting(index, ends_differ=True)
        rows = self._rows([*prompt_of(request), *wanted[:index]], index)
        sampling = CheckedSampling(request.temperature, request.seed or 0)
        scored = [sampling.scores(row, index) for row in rows]
        gap = max(abs(float(row[wanted[index]] - row[given[index]])) for row in scored)
        rounding = max(float(np.abs(row - rows[0]).max()) for row in rows)
        return Parting(index, gap, rounding)

    def _rows(self, text: list[int], num_answered: int) -> list[Logits]:
        """Return the logits after a text, whose last tokens are an answer, read in several ways.

        The prompt is read in long passes or in short ones, after which its memory is copied, and
        the answer token by token or in longer passes.
        """
        context, num_prompt = self._engine.context, len(text) - num_answered - 1
        longest, brief = context.native.chunk, context.native.brief_chunk
        rows = []
        for size, at_once in ((longest, 1), (brief, 1), (longest, MOST_AT_ONCE)):
            context.prefill([])
            for stop in (*range(size, num_prompt, size), num_prompt):
                context.prefill(text[:stop])
            if size != longest:
                context.restore(context.snapshot())
            most = min(at_once, context.longest_draft + 1)
            parts = [text[start : start + most] for start in range(num_prompt, len(text), most)]
            *_, last = [context.evaluate(part, len(part))[-1] for part in parts]
            rows.append(last.copy())
        return rows


def prompt_of(request: GenerateRequest) -> list[int]:
    """Return a prompt that is given as tokens."""
    return [int(token) for token in request.prompt]

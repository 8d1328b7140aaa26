"""Decoding with toy models, for the tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from specchat.decoding.chunk import Chunk
from specchat.decoding.constraint import Mask
from specchat.decoding.distribution import Distribution, Logits, Random
from specchat.decoding.loop import Answer
from specchat.decoding.noise import Noise
from specchat.decoding.ports import Drafter, LanguageModel, Pacer, PromptProgress
from specchat.decoding.proposal import DraftToken
from specchat.decoding.request import Request
from specchat.decoding.sampling import Sampler
from specchat.decoding.statistics import Statistics
from specchat.decoding.verification import TargetAt, Verdict
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.silent import SilentDrafter
from specchat.drafting.token_map import TokenMap
from specchat.options.declarations import Sampling
from specchat.testing.toy import LogitsAfter, ToyLanguageModel

GREEDY = Sampling(temperature=0.0)
WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
"""Nothing is cut off: the model's own distribution."""


def verify_by_rejection(draft: Sequence[DraftToken], target: TargetAt, random: Random) -> Verdict:
    """Accept a token with probability min(1, p/q), else draw from norm(max(0, p - q)).

    Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318).
    """
    for position, (token, proposed, _) in enumerate(draft):
        wanted = target(position)
        if random() * proposed.probability(token) >= wanted.probability(token):
            instead = wanted.sample_excess(proposed, random)
            return Verdict(position, instead, (1.0,) * (position + 1))
    return Verdict(len(draft), target(len(draft)).sample(random), (1.0,) * (len(draft) + 1))


class ToyPair:
    """A toy target with a drafter; keeps what the last answer left behind."""

    def __init__(
        self,
        target: LogitsAfter,
        draft: LogitsAfter | None = None,
        *,
        vocabulary: int = 5,
        capacity: int = 4096,
        wrap: Callable[[Drafter], Drafter] = lambda drafter: drafter,
        end_tokens: Sequence[int] = (),
        tokens: TokenMap | None = None,
        most_branches: int = 0,
    ) -> None:
        """Make the models; `wrap` may put another drafter around the draft model's.

        `tokens` is the map to the draft's vocabulary, by default the same ids below `vocabulary`.
        """
        self.target = ToyLanguageModel(target, capacity, most_branches)
        self.draft = ToyLanguageModel(draft, capacity) if draft else None
        self.end_tokens = end_tokens
        self.statistics = Statistics()
        self.drafter: Drafter = SilentDrafter()
        if self.draft:
            self.drafter = wrap(
                DraftModelDrafter(self.draft, tokens or TokenMap(vocabulary), end_tokens)
            )

    def chunks(
        self,
        prompt: Sequence[int] = (1, 2),
        sampling: Sampling = GREEDY,
        seed: int = 0,
        **options: Any,
    ) -> list[Chunk]:
        """Decode one answer to its end."""
        return list(self.stream(prompt, sampling, seed, **options))

    def stream(
        self,
        prompt: Sequence[int] = (1, 2),
        sampling: Sampling = GREEDY,
        seed: int = 0,
        **options: Any,
    ) -> Any:
        """Return the generator of one answer; `is_seeded` draws with the seed's noise."""
        generator = np.random.default_rng(seed)
        self.statistics = Statistics()
        options.setdefault("max_tokens", 60)
        pacer = options.pop("pacer", None)
        request = Request(
            tokens=prompt,
            sampling=sampling,
            random=options.pop("random", generator.random),
            noise=Noise(seed) if options.pop("is_seeded", False) else None,
            end_tokens=self.end_tokens,
            **options,
        )
        return decode(self.target, self.drafter, request, self.statistics, pacer=pacer)

    def answer(self, *arguments: Any, **options: Any) -> list[int]:
        """Decode one answer and return its tokens."""
        return tokens_of(self.chunks(*arguments, **options))


def decode(
    target: LanguageModel,
    drafter: Drafter,
    request: Request,
    statistics: Statistics,
    on_progress: PromptProgress | None = None,
    pacer: Pacer | None = None,
) -> Iterator[Chunk]:
    """Yield the chunks of an answer by itself."""
    answer = Answer(target, drafter, request, statistics, on_progress, pacer)
    for event in answer.steps():
        if isinstance(event, Chunk):
            yield event


def tokens_of(chunks: Sequence[Chunk]) -> list[int]:
    """Return the tokens of an answer."""
    return [token for chunk in chunks for token in chunk.tokens]


@contextmanager
def remembered_distributions() -> Iterator[None]:
    """Work out each distribution once, in answers with equal options: toys have few rows."""
    known: dict[tuple[bytes, tuple[int, ...], bytes], Distribution] = {}
    work_out = Sampler.distribution

    def distribution(
        sampler: Sampler, logits: Logits, history: Sequence[int], mask: Mask | None = None
    ) -> Distribution:
        allowed = mask.allowed(np.arange(logits.size)).tobytes() if mask else b""
        seen = logits.tobytes(), tuple(sampler.window(history)), allowed
        if seen not in known:
            known[seen] = work_out(sampler, logits, history, mask)
        return known[seen]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Sampler, "distribution", distribution)
        yield

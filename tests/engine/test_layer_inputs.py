"""Drafts that read the inputs of their target's layers: each kind with each architecture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from engine.test_heads import PROMPT as HEADS_PROMPT
from engine.test_heads import exact_shares
from scripts.support.tiny_gguf.drafts import (
    CASES,
    DRAFT_LENGTH,
    OWN_HEAD_CASES,
    PROMPT,
    write_case,
)
from specchat.decoding.proposal import DraftToken
from specchat.drafting.head_drafter import HeadDrafter
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.gguf.draft_kinds import KINDS
from specchat.llama.hidden_state_feed import HiddenStateFeed
from specchat.options.declarations import Sampling

EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "off",
    "cache_type": "f32",
    "learn": False,
}
RECORDED = json.loads((Path(__file__).parent / "llama_drafts.json").read_text("utf-8"))
ALMOST_RIGHT = 0.01
LEAST_RATE = {"EAGLE-3": 0.65, "DSpark": 0.55}
"""Where the tiny draft is right less than 75 % of the time."""
LEAST_COMPARED = {"qwen3next": 1, "minimax-01": 2}
"""Where llama.cpp goes back to a saved state, and so drafts at other places."""
MOST_COMPARED = {"hy_v3 with MTP in turn": 2}
"""How many tokens of each draft are compared: Hunyuan 3's heads give a state for every token, of
which llama.cpp's tool hands the first one to the third head, not the last."""


def test_every_kind_that_runs_is_tried_with_every_architecture() -> None:
    """No row says of an architecture that it runs without a case here."""
    names = {"prediction head": "MTP", "assistant": "MTP", "heads in turn": "MTP in turn"}
    running = {
        f"{target} with {names.get(kind.name, kind.name)}"
        for kind in KINDS.values()
        for target, reason in kind.targets.items()
        if not reason
    }
    assert running == {case for case in (*CASES, *OWN_HEAD_CASES) if "window" not in case}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the files, which are written once."""
    return tmp_path_factory.mktemp("drafts")


def opened(files: dict[str, Any]) -> LocalEngine:
    """Return an engine in this process."""
    return LocalEngine(Loading(**{**files, **EXACT}))


def tokens_of(engine: LocalEngine, prompt: Sequence[int], **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    usual: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "drafter": "head"}
    chunks = engine.generate(prompt, **usual | options)
    return [token for chunk in chunks for token in chunk.tokens]


def rate(files: dict[str, Any]) -> float:
    """Return the acceptance rate over some answers."""
    random = np.random.default_rng(0)
    accepted = drafted = 0
    with opened(files) as engine:
        for _ in range(4):
            prompt = [int(token) for token in random.integers(10, 300, 12)]
            tokens_of(engine, prompt, draft_length=3)
            accepted += engine.stats.accepted
            drafted += engine.stats.drafted
    return accepted / drafted


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_the_text_is_plain_decodings(folder: Path, case: str) -> None:
    """For short and long drafts, over two turns, regenerated, and after another text."""
    with opened(write_case(folder, case, noise=0.2)) as engine:
        prompt = [40, 75, 111, 260, 90, 33, 201, 150]
        plain = tokens_of(engine, prompt, drafter="none")
        second = [*prompt, *plain, 9, 99, 33]
        texts = {tuple(text): tokens_of(engine, text, drafter="none") for text in (second, [5, 6])}
        for drafter, length in (("head", 1), ("head", 8), ("auto", 3)):
            options: dict[str, Any] = {"drafter": drafter, "draft_length": length}
            assert tokens_of(engine, prompt, **options) == plain
            for text in (second, second, [5, 6]):
                assert tokens_of(engine, text, **options) == texts[tuple(text)]
            assert engine.stats.drafted > 0


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("case", CASES)
def test_the_draft_needs_the_right_inputs(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it is accepted with the target's rows, and less with each in another's place."""
    files = write_case(folder, case, noise=ALMOST_RIGHT)
    right = rate(files)
    assert right > LEAST_RATE.get(case.partition(" with ")[2], 0.75)
    take = HiddenStateFeed.take
    monkeypatch.setattr(
        HiddenStateFeed,
        "take",
        lambda self, start, count: np.roll(take(self, start, count), 1, axis=1),
    )
    assert rate(files) < right - 0.1


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("case", [*CASES, *OWN_HEAD_CASES])
def test_drafts_are_those_of_llama_cpp(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token, wherever both drafted; scripts/lab/record_drafts.py recorded its own."""
    drafts: list[list[int]] = []
    propose = HeadDrafter.propose

    def propose_and_note(self: HeadDrafter, *arguments: Any) -> list[DraftToken]:
        draft = propose(self, *arguments)
        drafts.append([each.token for each in draft])
        return draft

    monkeypatch.setattr(HeadDrafter, "propose", propose_and_note)
    with opened(write_case(folder, case)) as engine:
        prompt = engine.prompts.tokenize(PROMPT, special=True, begins=True)
        text = tokens_of(engine, prompt, draft_length=DRAFT_LENGTH, max_tokens=60)

    places, place = {}, 0
    for draft in drafts:
        num_accepted = next(
            (count for count, token in enumerate(draft) if text[place + count] != token), len(draft)
        )
        places[place] = (draft, num_accepted)
        place += num_accepted + 1
        if place + DRAFT_LENGTH >= len(text):
            break
    compared = [step for step in RECORDED[case] if step[0] in places]
    most = MOST_COMPARED.get(case, DRAFT_LENGTH)
    same = [
        start
        for start, drafted, num_accepted, last in compared
        if drafted[:most] in ([], places[start][0][:most])
        and min(num_accepted, most) == min(places[start][1], most)
        and last in text[start + num_accepted : start + num_accepted + 2]
    ]
    # one tie that rounding decides, which may differ by machine and by how a state was restored
    assert len(same) >= max(LEAST_COMPARED.get(case.partition(" ")[0], 3), len(compared) - 1)


def test_candidates_of_a_lattice_become_branches(folder: Path) -> None:
    """Beside the tokens that DFlash 2 drafts."""
    with opened({**write_case(folder, "qwen3 with DFlash 2"), "exact": "off"}) as engine:
        plain = tokens_of(engine, [40, 75, 111], drafter="none")
        assert tokens_of(engine, [40, 75, 111], draft_length=3, draft_tree=14) == plain
        assert engine.stats.nodes > engine.stats.drafted


@pytest.mark.slow
@pytest.mark.parametrize("case", ["qwen3 with DFlash 2", "qwen3 with DSpark"])
def test_three_tokens_together_are_distributed_as_the_target_has_them(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At temperature 1, where logits depend on the tokens before (false alarm 1e-4)."""
    generator = np.random.default_rng(12)
    monkeypatch.setattr("specchat.decoding.request.default_rng", lambda: generator)
    options: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "min_p": 0.0, "top_k": 4}
    with opened(write_case(folder, case, noise=0.2)) as engine:
        shares = exact_shares(engine, Sampling(**options), 3)
        counts = Counter(
            tuple(tokens_of(engine, HEADS_PROMPT, max_tokens=3, draft_length=3, **options))
            for _ in range(1000)
        )
    assert set(counts) <= set(shares)
    likely = [each for each, share in shares.items() if share * 1000 >= 5]
    seen = [counts[each] for each in likely]
    expected = [1000 * shares[each] for each in likely]
    seen.append(1000 - sum(seen))
    expected.append(1000 - sum(expected))
    assert stats.chisquare(seen, expected).pvalue > 1e-4

"""Answers that an engine decodes together are those that it gives alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from engine.test_heads import (  # noqa: F401  # a fixture
    DOUBTFUL,
    KINDS,
    LAYERS,
    WriteHead,
    heads,
    opened,
)
from engine.test_lossless import EXACT
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import SpecchatError
from specchat.llama.batch import SequencesBatch
from specchat.llama.native_context import NativeContext
from specchat.requests.answer_request import GenerateRequest
from tables import table

PROMPTS = [
    [3 + (7 * place + 31 * number) % 240 for place in range(20 + 40 * number)]
    for number in range(4)
]


def request(number: int, **options: Any) -> GenerateRequest:
    """Return a request of its own prompt, with a seed of its own."""
    given = {"temperature": 0.9, "seed": 5 + number, "max_tokens": 30, "ignore_end": True}
    return GenerateRequest(prompt=PROMPTS[number], **given | {"draft_length": 3} | options)


def alone(engine: LocalEngine, asked: GenerateRequest) -> list[int]:
    """Return the tokens of an answer by itself."""
    return [
        token for update in engine.begin(asked) for chunk in update.chunks for token in chunk.tokens
    ]


def together(
    engine: LocalEngine, asked: Sequence[GenerateRequest]
) -> tuple[list[list[int]], list[SpecchatError | None]]:
    """Return the tokens of each answer, and the errors they failed with."""
    tokens: list[list[int]] = [[] for _ in asked]
    errors: list[SpecchatError | None] = [None] * len(asked)
    for number, update in engine.begin_together(asked):
        tokens[number] += [token for chunk in update.chunks for token in chunk.tokens]
        errors[number] = update.error
    return tokens, errors


def loading(write: WriteModel, architecture: str, **options: Any) -> Loading:
    """Return how to load a target and a draft for four texts at once."""
    draft = write(architecture, "half right")
    given = {**EXACT, "ctx": 512, "at_once": 4}
    return Loading(write(architecture), draft, **given | options)


@table("architecture", ARCHITECTURES)
def test_each_answer_is_the_one_it_is_alone(shallow: WriteModel, architecture: str) -> None:
    """With drafts and seeds, in several companies; what is in memory changes nothing."""
    with LocalEngine(loading(shallow, architecture)) as engine:
        wanted = [alone(engine, request(number)) for number in range(4)]
        random = np.random.default_rng(3)
        for _ in range(4):
            numbers = random.permutation(4)[: random.integers(2, 5)].tolist()
            tokens, errors = together(engine, [request(number) for number in numbers])
            assert errors == [None] * len(numbers)
            assert tokens == [wanted[number] for number in numbers]


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_exact_answers_have_the_bits_that_they_have_alone(
    shallow: WriteModel, architecture: str
) -> None:
    """With `--exact on` the probabilities of all tokens are equal, too."""
    with LocalEngine(loading(shallow, architecture, exact="on")) as engine:
        engine.prepare(only_exactness=True)
        asked = [request(number, alternatives=3) for number in range(4)]
        wanted = [
            [step.alternatives for update in engine.begin(each) for step in update.chunks]
            for each in asked
        ]
        engine.forget()
        found: list[list[Any]] = [[] for _ in asked]
        for number, update in engine.begin_together(asked):
            found[number] += [step.alternatives for step in update.chunks]
        for own, others in zip(wanted, found, strict=True):
            joined = [[each for step in steps for each in step] for steps in (own, others)]
            assert joined[0] == joined[1]


@pytest.mark.parametrize("kind", KINDS)
def test_heads_draft_for_each_answer(heads: WriteHead, kind: str) -> None:  # noqa: F811
    """Each text has a head of its own, which reads the target's states of that text."""
    files = heads(kind, noise=DOUBTFUL, num_layers=LAYERS[kind])
    with opened(files, ctx=512, at_once=3) as engine:
        if len(engine._places) == 1:
            pytest.skip("the model's memory holds one text")
        options = {"temperature": 0.0, "seed": None, "drafter": "head"}
        asked = [request(number, **options) for number in range(3)]
        wanted, accepted = [], []
        for each in asked:
            updates = list(engine.begin(each))
            wanted.append(
                [token for update in updates for step in update.chunks for token in step.tokens]
            )
            accepted.append(updates[-1].statistics.accepted)
        engine.forget()
        tokens: list[list[int]] = [[] for _ in asked]
        statistics: dict[int, Any] = {}
        for number, update in engine.begin_together(asked):
            tokens[number] += [token for step in update.chunks for token in step.tokens]
            statistics[number] = update.statistics
        assert tokens == wanted
        assert [statistics[number].accepted for number in range(3)] == accepted
        assert sum(accepted) > 0


def test_one_that_fails_does_not_end_the_others(shallow: WriteModel) -> None:
    """A prompt that does not fit ends its answer, and a wrong option, too."""
    with LocalEngine(loading(shallow, "llama")) as engine:
        wanted = alone(engine, request(0))
        long = GenerateRequest(prompt=[5] * 600, max_tokens=5)
        wrong = request(1, drafter="head")
        tokens, errors = together(engine, [request(0), long, wrong])
        assert tokens == [wanted, [], []]
        assert errors[0] is None
        assert "600 tokens" in str(errors[1])
        assert "cannot work here" in str(errors[2])
        assert alone(engine, request(0)) == wanted


def test_a_stop_ends_all_and_they_go_on_where_they_were(shallow: WriteModel) -> None:
    """Stopped every few steps and begun again, the texts are the same, and no prompt is reread."""
    with LocalEngine(loading(shallow, "llama")) as engine:
        wanted = [alone(engine, request(number)) for number in range(3)]
        engine.forget()
        begun: list[list[Any]] = [[], [], []]
        for _ in range(100):
            left = [number for number in range(3) if sum(len(s.tokens) for s in begun[number]) < 30]
            if not left:
                break
            asked = [
                request(
                    number,
                    begun=tuple(begun[number]),
                    max_tokens=30 - sum(len(step.tokens) for step in begun[number]),
                )
                for number in left
            ]
            num_known = [len(begun[number]) for number in left]
            count = 0
            for place, update in engine.begin_together(asked):
                steps = [step for step in update.chunks if step.tokens][num_known[place] :]
                num_known[place] = max(0, num_known[place] - len(update.chunks))
                begun[left[place]] += steps
                count += len(steps)
                if count >= 9:
                    engine.stop()
        found = [[token for step in each for token in step.tokens] for each in begun]
        assert found == wanted


def test_fewer_texts_are_held_where_memory_is_short(shallow: WriteModel) -> None:
    """The plan says how many answers are decoded at once, and each has the whole context."""
    with LocalEngine(loading(shallow, "llama", at_once=3)) as engine:
        assert len(engine._places) == 3
        assert engine.facts.context == 512
        assert "context 512 for each of 3 answers" in engine.facts.plan


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_no_shared_pass_is_longer_than_is_exact(
    shallow: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tokens that are read again after a rollback count, too."""
    counts: list[int] = []
    fill = SequencesBatch.fill_each

    def noted(self: SequencesBatch, tokens: Sequence[int], *others: Any) -> None:
        counts.append(len(tokens))
        fill(self, tokens, *others)

    with LocalEngine(loading(shallow, architecture, exact="on", at_once=2)) as engine:
        engine.prepare(only_exactness=True)
        longest = 1 + (engine.facts.repeatable_draft or 0)
        monkeypatch.setattr(SequencesBatch, "fill_each", noted)
        together(engine, [request(0), request(1)])
    assert max(counts, default=0) <= longest


def test_answers_take_places_that_follow_each_other(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp would divide their passes otherwise, whatever texts the places have held."""
    passes: list[list[int]] = []
    fill = SequencesBatch.fill_each

    def noted(
        self: SequencesBatch, tokens: Any, positions: Any, sequences: Any, gives: Any
    ) -> None:
        passes.append([own for (own,) in sequences])
        fill(self, tokens, positions, sequences, gives)

    with LocalEngine(loading(shallow, "llama")) as engine:
        for number in (2, 0, 3, 1):
            alone(engine, request(number))
        monkeypatch.setattr(SequencesBatch, "fill_each", noted)
        for number in (1, 3, 2):  # one goes on where it was, another one is new
            new = replace(request(0), prompt=[9 + number, *PROMPTS[2][:30]])
            together(engine, [request(number), new])
    assert passes
    for sequences in passes:
        used = list(dict.fromkeys(sequences))
        assert used == list(range(used[0], used[0] + len(used)))


def test_a_text_that_comes_back_in_another_place_has_drafters_of_that_place(
    heads: WriteHead,  # noqa: F811
) -> None:
    """Texts that take turns in one place are decoded together later, and drafts are as good."""
    files = heads("qwen3 in two files", noise=DOUBTFUL, num_layers=LAYERS["qwen3 in two files"])
    options: dict[str, Any] = {"temperature": 0.0, "seed": None, "drafter": "head"}
    long = [[*PROMPTS[3], *PROMPTS[number], *PROMPTS[3]] for number in range(2)]
    asked = [replace(request(0, **options), prompt=each) for each in long]
    with opened(files, ctx=1024, at_once=2) as engine:
        engine._places[1].used = float("inf")  # so that both go to the other place
        wanted, accepted = [], []
        for _ in range(2):
            wanted = [alone(engine, each) for each in asked]
        for each in asked:
            updates = list(engine.begin(each))
            accepted.append(updates[-1].statistics.accepted)
        engine._places[1].used = 0.0
        tokens: list[list[int]] = [[], []]
        found = [0, 0]
        for number, update in engine.begin_together(asked):
            tokens[number] += [token for step in update.chunks for token in step.tokens]
            found[number] = update.statistics.accepted
        assert tokens == wanted
        for place in engine._places:
            for drafter in place.drafters.values():
                assert vars(drafter)["_model"] is place.draft
        assert sum(found) >= 0.7 * sum(accepted)


@pytest.mark.parametrize("architecture", ["qwen35", "granitehybrid", "gemma3", "llama"])
def test_a_pause_loses_no_token_that_a_hybrid_has_written(
    shallow: WriteModel, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in the middle of a pass, which ends first where its end is hard to undo."""
    options: dict[str, Any] = {"drafter": "none", "draft_length": "auto", "max_tokens": 60}
    options |= {"temperature": 0.0, "seed": None}
    with LocalEngine(loading(shallow, architecture, at_once=1)) as engine:
        wanted = alone(engine, request(0, **options))
        engine.forget()
        run, num_passes = NativeContext.run, 0

        def paused(self: NativeContext, batch: Any) -> None:
            nonlocal num_passes
            num_passes += 1
            if num_passes == 30:
                engine.pause()
            run(self, batch)

        monkeypatch.setattr(NativeContext, "run", paused)
        begun = [
            step
            for update in engine.begin(request(0, **options))
            for step in update.chunks
            if step.tokens
        ]
        monkeypatch.undo()
        assert 0 < len(begun) < 60
        rest = request(0, **{**options, "max_tokens": 60 - len(begun)}, begun=tuple(begun))
        updates = list(engine.begin(rest))
        tokens = [t for update in updates for step in update.chunks for t in step.tokens]
        assert tokens == wanted
        assert updates[-1].statistics.cached_tokens >= len(PROMPTS[0]) + len(begun) - 2


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_an_exact_answer_begins_with_no_copy_that_has_other_bits(
    shallow: WriteModel, architecture: str
) -> None:
    """Without a seed, too: it takes whole passes, and nothing that a window has put elsewhere."""
    prompts = [[*COMMON, *PROMPTS[number][:40]] for number in range(3)]
    options: dict[str, Any] = {"seed": None, "temperature": 0.0}
    asked = [replace(request(number, **options), prompt=prompts[number]) for number in range(3)]
    with LocalEngine(loading(shallow, architecture, batch=64, exact="on")) as engine:
        engine.prepare(only_exactness=True)
        kept = engine.context.native.chunk * (200 // 64) if architecture == "llama" else 0
        cached: dict[int, int] = {}
        for number, update in engine.begin_together(asked):
            cached[number] = update.statistics.cached_tokens
        assert cached == {0: 0, 1: kept, 2: kept}


COMMON = [3 + (11 * place) % 240 for place in range(200)]


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen35", "lfm2", "granitehybrid"])
@pytest.mark.parametrize("seed", [None, 5])
def test_a_beginning_that_answers_have_in_common_is_read_once(
    shallow: WriteModel, architecture: str, seed: int | None
) -> None:
    """By those that arrive together and later, as far as the memory can step back to it.

    With a seed it must have been read in the passes of a prompt alone: whole ones.
    """
    options: dict[str, Any] = {"seed": seed, "temperature": 0.0 if seed is None else 0.9}
    prompts = [[*COMMON, *PROMPTS[number][:40]] for number in range(4)]
    asked = [replace(request(number, **options), prompt=prompts[number]) for number in range(4)]
    with LocalEngine(loading(shallow, architecture, batch=64)) as engine:
        wanted = []
        for each in asked:
            engine.forget()
            wanted.append(alone(engine, each))
        engine.forget()
        tokens: list[list[int]] = [[] for _ in asked]
        cached: dict[int, int] = {}
        for numbers in ((0, 1, 2), (3,)):
            for place, update in engine.begin_together([asked[number] for number in numbers]):
                number = numbers[place]
                tokens[number] += [token for step in update.chunks for token in step.tokens]
                cached[number] = update.statistics.cached_tokens
        assert tokens == wanted
        if engine.context.rollback_kind.removes_any_tail:
            least = 200 if seed is None else 192
            assert cached[0] == 0
            assert min(cached[number] for number in (1, 2, 3)) >= least


@table(
    ("architecture", "of_beginning", "of_whole"),
    [("llama", 200, 199), ("gemma3", 0, 199), ("qwen35", 0, 199), ("granitehybrid", 0, 199)],
)
def test_an_answer_waits_for_what_can_be_copied(
    shallow: WriteModel, architecture: str, of_beginning: int, of_whole: int
) -> None:
    """Of a hybrid or a window that is a saved state, as at the end of a prompt, or nothing."""
    options: dict[str, Any] = {"seed": None, "temperature": 0.0, "max_tokens": 2}
    texts = [COMMON, [*COMMON, *PROMPTS[0]], [*COMMON, *PROMPTS[1]]]
    asked = [replace(request(0, **options), prompt=text) for text in texts]
    with LocalEngine(loading(shallow, architecture, batch=64)) as engine:
        for number, expected in ((0, of_whole), (1, of_beginning)):
            engine.forget()
            free, pair = list(engine._places), (asked[number], asked[2])
            first, second = (engine._started(each, [free.pop(0)], (), (0, 0)) for each in pair)
            assert second.would_share(first, first.decoding().places_to_stop) == expected
            updates = list(engine.begin_together(pair))
            cached = [each.statistics.cached_tokens for place, each in updates if place == 1]
            # without waiting, the first pass of the other one may be copied as it is
            assert cached[-1] == expected or (not expected and cached[-1] <= 66)


def test_a_long_text_is_not_copied_for_a_short_beginning(shallow: WriteModel) -> None:
    """A copy is whole, and the others wait for it: on a GPU, reading takes no longer."""
    short, other = ([*COMMON[:70], *PROMPTS[number]] for number in (0, 1))
    asked = [replace(request(0, max_tokens=2), prompt=text, seed=None) for text in (short, other)]
    with LocalEngine(loading(shallow, "llama", ctx=2048)) as engine:
        for is_on_gpu, num_more, expected in ((True, 0, 70), (True, 1200, 0), (False, 1200, 70)):
            engine.context.native.is_on_gpu = is_on_gpu
            engine.forget()
            long = replace(asked[0], prompt=[*short, *(COMMON * 6)[:num_more]])
            alone(engine, long)
            updates = list(engine.begin_together([long, asked[1]]))
            cached = [each.statistics.cached_tokens for place, each in updates if place == 1]
            assert cached[-1] == expected


def test_nothing_is_awaited_that_would_not_be_copied(shallow: WriteModel) -> None:
    """What is copied is all that the other answer has read by then: up to the end of its pass."""
    short, other = ([*COMMON[:100], *PROMPTS[number]] for number in (0, 1))
    options: dict[str, Any] = {"seed": None, "temperature": 0.0, "max_tokens": 2}
    texts = [[*short, *COMMON * 9], other]
    asked = [replace(request(0, **options), prompt=text) for text in texts]
    with LocalEngine(loading(shallow, "llama", ctx=4096, batch=2048)) as engine:
        for is_on_gpu, expected in ((True, 0), (False, 100)):
            engine.context.native.is_on_gpu = is_on_gpu
            engine.forget()
            free = list(engine._places)
            first, second = (engine._started(each, [free.pop(0)], (), (0, 0)) for each in asked)
            assert second.would_share(first, []) == expected
            updates = list(engine.begin_together(asked))
            cached = [each.statistics.cached_tokens for place, each in updates if place == 1]
            assert cached[-1] == expected

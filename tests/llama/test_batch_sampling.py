"""Sampling many answers at once: the same as one at a time, with the likeliest tokens kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from specchat.catalogue.pairs import load_pairs
from specchat.llama.batch_sampling import (
    LIKELIEST,
    BatchSampler,
    SampledAnswer,
    is_looping,
    likeliest,
)
from specchat.llama.context import Context
from specchat.llama.hidden_states import keep_layer_inputs, layer_inputs_of
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from specchat.prompts.chat_text import tokenize_chat

OPTIONS = ModelOptions(threads=1, ctx=512)
QUESTIONS = (
    "Name three fruits.",
    "Count to 5.",
    "Hello!",
    "What is the capital of France?",
    "1 + 1",
)
LONGEST = 12


@pytest.fixture(scope="module")
def demo() -> Iterator[Model]:
    """Yield the demo's target."""
    with Model(load_pairs()["demo"].target, OPTIONS) as model:
        yield model


def asked(model: Model, temperature: float = 0.0) -> list[SampledAnswer]:
    """Return the questions as prompts."""
    return [
        SampledAnswer(tokenize_chat(model, [{"role": "user", "content": text}]), temperature, text)
        for text in QUESTIONS
    ]


def sampled(
    model: Model, temperature: float = 0.0, seed: int = 0, **options: object
) -> list[SampledAnswer]:
    """Return the answers, fewer sequences than questions at a time."""
    shape: dict[str, object] = {"threads": 1, "seed": seed, **options}
    with BatchSampler(model, 3, 128, **shape) as sampler:  # type: ignore[arg-type]
        found = list(sampler.answers(asked(model, temperature), LONGEST))
    return sorted(found, key=lambda each: QUESTIONS.index(each.origin))


def test_answers_are_those_of_one_sequence_at_a_time(demo: Model) -> None:
    """Every question is answered once, with the tokens and distributions of a context alone."""
    found = sampled(demo)
    assert [each.origin for each in found] == list(QUESTIONS)
    with Context(demo, OPTIONS) as context:
        for answer in found:
            context.rollback(0)
            waiting = answer.prompt
            for token, kept, logs in zip(answer.tokens, answer.likeliest, answer.logs, strict=True):
                (row,) = context.evaluate(waiting, 1)
                assert token == kept[0] == row.argmax()
                probabilities = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
                assert np.exp(logs[:5]) == pytest.approx(probabilities[kept[:5]], abs=5e-3)
                waiting = [token]
            is_done = answer.tokens[-1] in demo.vocabulary.end_tokens
            assert is_done or len(answer.tokens) == LONGEST


@pytest.mark.slow
def test_answers_keep_what_layers_read(demo: Model) -> None:
    """The same as in a context alone, for each token but the last, with a beginning or without."""
    layers, width = (1, 0), int(demo.header.own("embedding_length"))
    for beginning in ([], asked(demo)[0].prompt[:2]):
        found = sampled(demo, layers=layers, beginning=beginning)
        with Context(demo, OPTIONS) as context:
            keep_layer_inputs(context.handle, layers)
            for answer in found:
                context.rollback(0)
                tokens = [*answer.prompt, *answer.tokens][:-1]
                context.evaluate(tokens, 1)
                alone = layer_inputs_of(context.handle, layers, len(tokens), width)
                read = np.concatenate(answer.inputs).astype(np.float32)
                assert read == pytest.approx(alone, abs=2e-2 * float(abs(alone).max()))
                assert abs(read - alone).mean() < 2e-3 * abs(alone).mean()
    assert sampled(demo)[0].inputs == []


def test_a_shared_beginning_is_evaluated_once_and_changes_nothing(demo: Model) -> None:
    """Prompts that begin with it, and one that does not, give the same answers."""
    prompts = asked(demo)
    beginning = prompts[0].prompt[:2]
    assert all(each.prompt[:2] == beginning for each in prompts)
    plain = [each.tokens for each in sampled(demo)]
    assert [each.tokens for each in sampled(demo, beginning=beginning)] == plain
    assert [each.tokens for each in sampled(demo, beginning=[5, 6, 7])] == plain


def test_above_temperature_0_the_seed_decides(demo: Model) -> None:
    """The same seed gives the same answers, another one others."""
    one, same, other = ([each.tokens for each in sampled(demo, 5.0, seed)] for seed in (1, 1, 2))
    assert one == same != other


def test_an_answer_ends_where_its_sequence_is_full(demo: Model) -> None:
    """No text grows beyond its part of the context."""
    with BatchSampler(demo, 2, 256, threads=1, seed=0) as sampler:
        prompt = asked(demo)[0].prompt * 40
        (answer,) = sampler.answers([SampledAnswer(prompt[:250], 5.0)], 100)
    assert len(answer.prompt) + len(answer.tokens) <= 256


def test_the_likeliest_tokens_are_sorted_and_padded() -> None:
    """Of few possible tokens the rest is padding; of many the best are kept."""
    row = np.full(100, -50.0, np.float32)
    row[[7, 3]] = 2.0, 1.0
    tokens, logs = likeliest(row)
    assert tokens[:2].tolist() == [7, 3]
    assert np.exp(logs[:2].astype(np.float64)) == pytest.approx([0.731, 0.269], abs=2e-3)
    assert np.isneginf(logs[2:]).all()
    row = np.linspace(0, 5, 100, dtype=np.float32)
    tokens, logs = likeliest(row)
    assert tokens.tolist() == list(range(99, 99 - LIKELIEST, -1))
    assert np.isfinite(logs).all()


def test_a_repeated_ending_is_a_loop() -> None:
    """The same twenty tokens four times are a loop, three times not yet."""
    text = list(range(20))
    assert is_looping(text * 4)
    assert not is_looping(text * 3)
    assert not is_looping([*range(100)])

"""NaN in an answer ends that one alone: what its memory held reaches no other answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import gguf
import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT
from engine.test_together import PROMPTS, alone, request, together
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import NotNumbers
from specchat.requests.answer_request import GenerateRequest

BAD = 250
"""A token whose embedding is NaN; no answer chooses it."""


def with_nan(path: Path, copy: Path) -> Path:
    """Return a copy of a model that cannot read a token."""
    copy.write_bytes(path.read_bytes())
    for tensor in gguf.GGUFReader(copy, "r+").tensors:
        if tensor.name == "token_embd.weight":
            tensor.data[BAD] = float("nan")
        if tensor.name == "output.weight":
            tensor.data[BAD] = 0
    return copy


def spoiled_prompt(number: int) -> list[int]:
    """Return a prompt that begins as a good one and has the token later."""
    return [*PROMPTS[number][:10], BAD, *PROMPTS[number][11:]]


def spoiled(number: int) -> GenerateRequest:
    """Return a request with that prompt."""
    return replace(request(number), prompt=spoiled_prompt(number))


def answered(engine: LocalEngine, asked: GenerateRequest) -> tuple[list[int], int]:
    """Return the tokens of an answer, and how many of its draft were accepted."""
    updates = list(engine.begin(asked))
    tokens = [token for update in updates for chunk in update.chunks for token in chunk.tokens]
    return tokens, updates[-1].statistics.accepted


@pytest.mark.parametrize("flash_attention", ["off", "on"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_next_answer_is_the_one_it_was_before(
    shallow: WriteModel, tmp_path: Path, architecture: str, flash_attention: str
) -> None:
    """With its drafts; after an answer and after scoring, whatever they share with it."""
    target = with_nan(shallow(architecture), tmp_path / "target.gguf")
    draft = with_nan(shallow(architecture, "half right"), tmp_path / "draft.gguf")
    options = {**EXACT, "ctx": 512, "flash_attention": flash_attention}
    with LocalEngine(Loading(target, draft, **options)) as engine:
        wanted = answered(engine, request(0))
        assert wanted[1]
        with pytest.raises(NotNumbers):
            answered(engine, spoiled(0))
        assert answered(engine, request(0)) == wanted
        with pytest.raises(NotNumbers):
            engine.score(spoiled_prompt(0), 1)
        assert answered(engine, request(0)) == wanted


@pytest.mark.parametrize("flash_attention", ["off", "on"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_draft_drafts_again_after_a_text_that_it_cannot_read(
    shallow: WriteModel, tmp_path: Path, architecture: str, flash_attention: str
) -> None:
    """The answer to that text has no drafts, and the next one as many as before."""
    draft = with_nan(shallow(architecture, "half right"), tmp_path / "draft.gguf")
    options = {**EXACT, "ctx": 512, "flash_attention": flash_attention}
    with LocalEngine(Loading(shallow(architecture), draft, **options)) as engine:
        wanted = answered(engine, request(0))
        assert answered(engine, spoiled(0))[1] == 0
        assert answered(engine, request(0)) == wanted


@pytest.mark.parametrize("flash_attention", ["off", "on"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_texts_beside_it_stay(
    shallow: WriteModel, tmp_path: Path, architecture: str, flash_attention: str
) -> None:
    """Answers beside it go on, their texts are not read again, and its place serves others."""
    target = with_nan(shallow(architecture), tmp_path / "target.gguf")
    options = {**EXACT, "ctx": 512, "at_once": 2, "flash_attention": flash_attention}
    with LocalEngine(Loading(target, **options)) as engine:
        wanted = [alone(engine, request(number)) for number in range(3)]
        tokens, errors = together(engine, [spoiled(1), request(2)])
        assert [type(error) for error in errors] == [NotNumbers, type(None)]
        assert tokens[1] == wanted[2]
        asked = [request(number) for number in (2, 0)]
        updates = list(engine.begin_together(asked))
        (stays, *_) = [update.statistics for number, update in updates if number == 0]
        assert stays.cached_tokens == len(PROMPTS[2]) - 1
        tokens, errors = together(engine, [request(0), request(1)])
        assert (tokens, errors) == (wanted[:2], [None, None])


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba"])
def test_a_copy_of_a_stopped_text_spoils_one_answer_at_most(
    shallow: WriteModel, tmp_path: Path, architecture: str
) -> None:
    """It is set aside before anything that it gives is looked at."""
    target = with_nan(shallow(architecture), tmp_path / "target.gguf")
    beginning = [3 + 7 * place % 240 for place in range(400)]
    good = replace(request(0), prompt=beginning)
    options = {**EXACT, "ctx": 512, "batch": 32, "flash_attention": "off", "cache_ram": 64}
    with LocalEngine(Loading(target, **options)) as engine:

        def stop(_: str, share: float) -> None:
            if share > 0.95:
                engine.stop()

        wanted = answered(engine, good)
        engine.forget()
        bad = replace(good, prompt=[*beginning[:380], BAD, *beginning[:60]], on_progress=stop)
        answered(engine, bad)
        answered(engine, replace(good, prompt=[9, 8, 7] * 60))
        with suppress(NotNumbers):
            answered(engine, good)
        assert answered(engine, good) == wanted

"""A real model against llama.cpp's own tools: its tokens, its template and its greedy answers.

The reference was recorded by scripts/lab/record_llama_server.py, with the llama.cpp of the pinned
llama-cpp-python. Where LLAMA_SERVER in the environment names a llama-server (with llama-tokenize
beside it), it is recorded again and compared too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from real_model.near_ties import NEAR_TIE, distances, logits, require_near_tie
from scripts.support.tool_record import ANSWER_TOKENS, record
from specchat.decoding.text_assembler import TextAssembler
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.prompts.chat_text import tokenize_chat

pytestmark = pytest.mark.slow

SERVER = os.environ.get("LLAMA_SERVER")
NUM_ANSWERS = 20


def answered(reference: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the conversations that the server answered."""
    return [each for each in reference["conversations"] if "answer" in each]


def test_texts_become_llama_tokenizes_tokens(
    engine: LocalEngine, reference: dict[str, Any]
) -> None:
    """Scripts of the world, emoji of several code points, code and control characters."""
    vocabulary = engine.model.vocabulary
    for case in reference["texts"]:
        tokens = vocabulary.tokenize(case["text"], add_special=True, parse_special=False)
        assert tokens == case["tokens"], case["text"]
    assert len(reference["texts"]) >= 30


def test_tokens_become_the_same_text_again(engine: LocalEngine, reference: dict[str, Any]) -> None:
    """Token by token, and no character is shown before its last byte is there."""
    vocabulary = engine.model.vocabulary
    for case in reference["texts"]:
        assembler = TextAssembler(vocabulary.piece)
        parts = [assembler.push(token) for token in case["tokens"]]
        assert "".join(parts) + assembler.finish() == case["text"]
        assert "\ufffd" not in "".join(parts).replace("\ufffd" * case["text"].count("\ufffd"), "")
    split = [token for token in case["tokens"] if not is_text(vocabulary.piece(token))]
    assert split, "no token of the last text ends inside a character"


def is_text(piece: bytes) -> bool:
    """Return True if the bytes are whole characters."""
    return piece.decode("utf-8", "ignore").encode() == piece


def test_conversations_become_the_servers_prompts(
    engine: LocalEngine, reference: dict[str, Any]
) -> None:
    """With system prompts, several turns, empty messages, and text that looks like a template."""
    vocabulary = engine.model.vocabulary
    for case in reference["conversations"]:
        tokens = tokenize_chat(engine.model, case["messages"])
        assert tokens == case["tokens"], case["prompt"]
        shown = [
            vocabulary.text(token) if vocabulary.is_control(token) else vocabulary.piece(token)
            for token in tokens
        ]
        assert b"".join(shown).decode() == case["prompt"]


@pytest.mark.parametrize("number", range(0, NUM_ANSWERS, 3))
def test_greedy_answers_are_the_servers(
    engine: LocalEngine, reference: dict[str, Any], number: int
) -> None:
    """Equal up to the first near tie; the rest of the server's answer is nearly the argmax too."""
    case = answered(reference)[number]
    chunks = list(
        engine.chat(case["messages"], temperature=0.0, drafter="none", max_tokens=ANSWER_TOKENS)
    )
    tokens = [token for chunk in chunks for token in chunk.tokens]
    if tokens == case["answer_tokens"]:
        assert "".join(chunk.text for chunk in chunks).rstrip("\ufffd") == case["answer"]
        return
    require_near_tie(engine, case["tokens"], tokens, case["answer_tokens"])
    rows = logits(engine, case["tokens"], case["answer_tokens"], 16)
    assert distances(rows, case["answer_tokens"]).max() <= NEAR_TIE


def test_the_recording_has_20_answers(reference: dict[str, Any]) -> None:
    """Each has the length asked for, or the model ended it."""
    assert len(answered(reference)) == NUM_ANSWERS
    assert all(0 < len(each["answer_tokens"]) <= ANSWER_TOKENS for each in answered(reference))


def test_rounding_explains_the_limit(
    engine: LocalEngine, smollm2: Path, reference: dict[str, Any]
) -> None:
    """With and without flash attention, the two most likely tokens part by no more than that."""
    changes: list[float] = []
    with LocalEngine(
        Loading(smollm2, ctx=512, threads=1, learn=False, flash_attention="off")
    ) as other:
        for case in answered(reference)[:4]:
            given = case["tokens"], case["answer_tokens"], 16
            here, there = logits(engine, *given), logits(other, *given)
            best = np.argsort(here, axis=1)[:, -2:]
            gaps = [np.diff(np.take_along_axis(rows, best, axis=1)) for rows in (here, there)]
            changes.append(float(np.abs(gaps[0] - gaps[1]).max()))
    print(f"the two best tokens part by up to {max(changes):.3f} logits")

    assert max(changes) <= NEAR_TIE


@pytest.mark.skipif(not SERVER, reason="LLAMA_SERVER names no llama-server to compare with")
def test_a_running_server_agrees_with_the_recording(
    engine: LocalEngine, smollm2: Path, reference: dict[str, Any]
) -> None:
    """Its tokens and prompts are the recorded ones, its answers up to the first near tie."""
    now = record(reference, Path(SERVER or ""), smollm2)

    assert now["texts"] == reference["texts"]
    for here, recorded in zip(now["conversations"], reference["conversations"], strict=True):
        assert here["prompt"] == recorded["prompt"]
        assert here["tokens"] == recorded["tokens"]
    for here, recorded in zip(answered(now), answered(reference), strict=True):
        require_near_tie(engine, here["tokens"], recorded["answer_tokens"], here["answer_tokens"])

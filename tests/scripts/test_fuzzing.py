"""Damaged models and random templates, in short; scripts/check/fuzz_models.py tries many more."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import WriteModel
from scripts.support import fuzzing
from scripts.support.tiny_gguf.drafts import write_case
from specchat.gguf.reader import read_header

SEEDS = st.integers(0, 2**64)


@given(seed=SEEDS)
@settings(max_examples=20)
def test_random_templates_are_rendered_or_refused(seed: int) -> None:
    """Within ten seconds, and with no escape sequence in the error."""
    assert set(fuzzing.fuzz_templates(1, random.Random(seed))) <= {"rendered", "refused"}


def test_damaged_headers_are_read_or_refused(tiny: WriteModel, tmp_path: Path) -> None:
    """Never with another error, and within ten seconds."""
    model = tiny("llama").read_bytes()
    found = fuzzing.fuzz_headers(model, 300, tmp_path, random.Random())
    assert set(found) <= {"read", "refused"}


@pytest.mark.skipif(sys.platform == "win32", reason="waits for a pipe with select")
def test_damaged_files_are_loaded_or_refused(tiny: WriteModel, tmp_path: Path) -> None:
    """Or end the child process that loads them; they never hang it."""
    model = tiny("llama").read_bytes()
    found = fuzzing.fuzz_loads(model, 20, tmp_path, random.Random())
    assert set(found) <= {"loaded", "refused", "the child process ended"}


@pytest.mark.skipif(sys.platform == "win32", reason="waits for a pipe with select")
@pytest.mark.parametrize("kind", fuzzing.HEADS)
def test_damaged_heads_draft_or_are_refused(kind: str, tmp_path: Path) -> None:
    """They neither end the process that loads them nor change the text."""
    found = fuzzing.fuzz_heads(kind, 20, tmp_path, random.Random(1))
    assert set(found) <= {"drafted", "refused"}


def test_a_head_in_parts_is_the_head(tmp_path: Path) -> None:
    """Its parts, put together again, are read as before."""
    path = write_case(tmp_path, "qwen3 with DSpark")["draft"]
    header = read_header(path)
    path.write_bytes(fuzzing.read_parts(path).content())
    again = read_header(path)
    assert (again.metadata, again.tensors) == (header.metadata, header.tensors)

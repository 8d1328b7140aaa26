"""What is said of files that work less well than they might: with `ask`, with `show`, in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import Vocabulary
from specchat import Engine
from specchat.cli import main
from specchat.errors import ModelWontLoad
from specchat.gguf.header import Header, Value
from specchat.gguf.reader import read_header
from specchat.planning.notices import notices_of_file, notices_of_pair
from tables import table

ROOT = Path(__file__).parents[2]
TRAINED = "the context of {} tokens exceeds the {} that tiny llama 0 was trained on"
OLD = "{} is an old file that does not name its pre-tokenizer"


def notices(target: Path, draft: Path | None = None, **options: Any) -> tuple[str, ...]:
    """Return what is said of a pair once it is loaded."""
    with Engine.load(target, draft, threads=1, learn=False, **options) as engine:
        assert list(engine.generate([5, 6, 7], max_tokens=2))
        return engine.facts.notices


@table(("ctx", "is_said"), [(0, False), (512, False), (513, True), (4096, True)])
def test_a_context_beyond_the_training_is_said(tiny: WriteModel, ctx: int, is_said: bool) -> None:
    """In one line with both lengths; the model is used all the same."""
    said = notices(tiny("llama", context_length=512), ctx=ctx)

    assert len(said) == is_said
    assert all(each.startswith(TRAINED.format(ctx, 512)) for each in said)


@pytest.mark.slow
def test_a_context_from_a_variable_counts_too(tiny: WriteModel) -> None:
    """`ask` prints the line before the answer, and not among it."""
    target = str(tiny("llama", context_length=512))
    words = ("--target", target, "--draft", "none", "--max-tokens", "1", "--threads", "1")
    done = subprocess.run(
        [sys.executable, "-m", "specchat", "ask", "hi", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "SPECCHAT_CTX": "1024"},
    )

    assert TRAINED.format(1024, 512) in done.stderr
    assert "trained" not in done.stdout


@table(
    ("keys", "longest"),
    [
        ({}, 2048),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 2048}, 8192),
        ({"type": "yarn", "factor": 4.0, "original_context_length": 512}, 2048),
        ({"type": "yarn", "factor": 40.0, "original_context_length": 4096}, 163_840),
        ({"type": "yarn", "factor": 4.0}, 2048),
        ({"type": "linear", "factor": 2.0, "original_context_length": 2048}, 4096),
        ({"type": "none", "factor": 4.0, "original_context_length": 2048}, 2048),
        ({"type": "longrope", "original_context_length": 1024}, 2048),
        ({"type": "yarn", "factor": float("inf"), "original_context_length": 2048}, 2048),
        ({"type": "yarn", "factor": float("nan"), "original_context_length": 2048}, 2048),
        ({"type": "yarn", "factor": "4", "original_context_length": 2048}, 2048),
    ],
)
def test_scaled_positions_reach_further(
    tiny: WriteModel, keys: dict[str, Value], longest: int
) -> None:
    """As far as the file says, whether its context size is that of the training or the scaled."""
    header = with_keys(read_header(tiny("llama")), "llama.rope.scaling.", keys)

    assert header.longest_context == longest
    assert list(notices_of_pair(header, None, longest, longest)) == []
    assert len(list(notices_of_pair(header, None, longest + 1, longest + 1))) == 1


def test_a_file_without_a_training_length_is_left_alone(tiny: WriteModel) -> None:
    """Nothing is known to be exceeded."""
    header = with_keys(read_header(tiny("llama")), "llama.", {"context_length": 0})

    assert list(notices_of_pair(header, None, 9999, 9999)) == []


def test_a_file_without_a_pre_tokenizer_is_said_to_be_old(tiny: WriteModel) -> None:
    """As target and as draft model."""
    good, old = tiny("llama"), tiny("llama", vocabulary=Vocabulary(pre_tokenizer=None))

    (of_target,) = notices(old, good)
    assert of_target.startswith(f"{OLD.format(old.name)}: answers may be worse")
    (of_draft,) = notices(good, old)
    assert of_draft.startswith(f"the draft model {OLD.format(old.name)}")
    assert notices(good, good) == ()


def test_an_old_file_is_shown_to_be_one(
    tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the lines and as JSON; a file of another tokenizer needs no pre-tokenizer."""
    old = tiny("llama", vocabulary=Vocabulary(pre_tokenizer=None))
    assert main(["show", str(old)]) == 0
    assert f"notice       {OLD.format(old.name)}" in capsys.readouterr().out
    for words in (Vocabulary(), Vocabulary(sentencepiece=True), Vocabulary(tokenizer=False)):
        assert main(["show", str(tiny("llama", vocabulary=words)), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["notices"] == []


@pytest.mark.parametrize("is_draft", [False, True])
def test_an_unknown_pre_tokenizer_comes_with_a_next_step(tiny: WriteModel, is_draft: bool) -> None:
    """A newer llama.cpp may know it."""
    made_up = tiny("llama", vocabulary=Vocabulary(pre_tokenizer="made-up"))
    pair = (tiny("llama"), made_up) if is_draft else (made_up, None)
    with pytest.raises(ModelWontLoad) as refusal:
        Engine.load(*pair, threads=1, ctx=256)

    assert str(refusal.value) == (
        f"{made_up}: this llama.cpp does not support the pre-tokenizer made-up: update specchat, or"
        " choose another model or another conversion of it"
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ((b"llama.context_length", b"llama.context_lengtx"), "key not found"),
        ((b"blk.1.attn_k.weight", b"blk.1.attn_x.weight"), "'blk.1.attn_k.weight' not found"),
    ],
)
def test_what_llama_cpp_refuses_comes_with_a_next_step(
    tiny: WriteModel, tmp_path: Path, changed: tuple[bytes, bytes], reason: str
) -> None:
    """After its own reason."""
    path = tmp_path / "x.gguf"
    path.write_bytes(tiny("llama").read_bytes().replace(*changed))
    with pytest.raises(ModelWontLoad) as refusal:
        Engine.load(path, threads=1, ctx=256)

    assert reason in str(refusal.value)
    assert str(refusal.value).endswith(
        "; update specchat, or choose another conversion of the model"
    )
    assert "\n" not in str(refusal.value)


def test_an_embedding_model_that_generates_text_is_said_to_be_one(tiny: WriteModel) -> None:
    """Decoders trained for embeddings can be loaded by their path."""
    header = with_keys(read_header(tiny("llama")), "llama.", {"pooling_type": 3})

    assert list(notices_of_file(header)) == [
        "tiny llama 0 is an embedding model: its text may be poor"
    ]


def with_keys(header: Header, prefix: str, keys: dict[str, Value]) -> Header:
    """Return a header with further keys."""
    own = {f"{prefix}{key}": value for key, value in keys.items()}
    return replace(header, metadata={**header.metadata, **own})


def tree_notices(engine: Engine, **options: Any) -> list[str]:
    """Return what is said of the draft trees of an answer."""
    chunks = list(engine.generate([5, 6, 7, 8], max_tokens=12, ignore_end=True, **options))
    assert chunks[-1].finish == "length"
    found = [each for each in engine.stats.notices if "tree" in each]
    assert len(found) < 2
    if found:
        assert engine.stats.nodes == engine.stats.drafted or "at most" in found[0]
    return found


@pytest.mark.slow
@table(
    ("architecture", "options", "reason"),
    [
        ("llama", {}, None),
        ("llama", {"exact": "on"}, "--exact is on, and passes with branches are not measured"),
        ("gemma3", {}, "the model has a sliding window, whose cache holds one text"),
        ("mamba", {}, "the model has a recurrent state, which holds one text"),
        ("lfm2", {}, "the model has a recurrent state, which holds one text"),
    ],
)
def test_a_tree_that_a_model_cannot_hold_is_said(
    tiny: WriteModel, architecture: str, options: dict[str, Any], reason: str | None
) -> None:
    """Once an answer, where a size was asked for; the drafts are chains."""
    files = tiny(architecture), tiny(architecture, "half right")
    with Engine.load(*files, threads=1, ctx=512, **options) as engine:
        engine.prepare()
        assert engine.facts.chains_reason == reason
        assert (engine.facts.most_branches > 0) == (reason is None)
        said = tree_notices(engine, draft_tree=6, draft_length=3)
        expected = f"drafts are chains, not trees of 6 tokens: {reason}"
        assert said == ([expected] if reason and not engine.facts.speculation_off_reason else [])
        for quiet in ("auto", "off"):
            assert tree_notices(engine, draft_tree=quiet, draft_length=3) == []
        assert tree_notices(engine, draft_tree=6, draft_length=0) == []


def test_a_tree_larger_than_the_context_holds_is_said(tiny: WriteModel) -> None:
    """Its size is that of the draft and of the branches that there is memory for."""
    with Engine.load(tiny("llama"), tiny("llama", "half right"), threads=1, ctx=512) as engine:
        most = 2 + engine.facts.most_branches
        said = tree_notices(engine, draft_tree=32, draft_length=2)
        assert said == [f"draft trees have at most {most} tokens here, not 32"]
        assert tree_notices(engine, draft_tree=most, draft_length=2) == []
        assert tree_notices(engine, draft_tree=32) == []
        chains = list(engine.generate([5, 6], max_tokens=3, draft_tree=9, is_exact=True))
        assert chains[-1].finish
        (said_of_exact,) = engine.stats.notices
        assert said_of_exact.endswith("the answer must be exact")

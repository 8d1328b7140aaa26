"""Engines in this process and in their own: same answers, same errors, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from scripts.support.processes import is_running
from specchat import Engine
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import (
    ContextFull,
    EngineFailed,
    IncompatibleDraft,
    InvalidOption,
    ModelNotFound,
    ModelWontLoad,
    SpecchatError,
)
from specchat.prompts.chat_text import tokenize_chat
from specchat.sharing.process_engine import ProcessEngine

EXACT: dict[str, Any] = {
    "ctx": 512,
    "threads": 1,
    "flash_attention": "off",
    "cache_type": "f32",
}
LONG = {"ctx": 100_000}
"""An answer in this context takes longer than any test takes to stop it."""
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
CONTRACT = {
    "prompt_tokens": int, "cached_tokens": int, "read_again": dict,
    "generated_tokens": int, "reasoning_tokens": int, "steps": int,
    "drafted": int, "accepted": int, "nodes": int, "forced": int, "repeated": int,
    "acceptance_rate": float, "tokens_per_step": float,
    "accepted_by_position": list, "acceptance_histogram": list, "time_to_first_token_s": float,
    "image_tokens": int, "image_s": float,
    "prompt_s": float, "decode_s": float, "draft_s": float, "verify_s": float,
    "overhead_s": float, "tokens_per_second": float,
}  # fmt: skip


@pytest.fixture(scope="module", params=[False, True], ids=["local", "remote"])
def engine(request: pytest.FixtureRequest, tiny: WriteModel) -> Iterator[Engine]:
    """An engine of each kind with a half-right draft."""
    files = tiny("llama"), tiny("llama", "half right")
    with Engine.load(*files, process=request.param, **EXACT) as made:
        yield made


def answer(engine: Engine, prompt: Any = PROMPT, **options: Any) -> list[int]:
    """Decode a greedy answer and return its tokens."""
    options = {"temperature": 0.0, "max_tokens": 40} | options
    return [token for chunk in engine.generate(prompt, **options) for token in chunk.tokens]


def test_both_engines_give_the_same_tokens(tiny: WriteModel) -> None:
    """A seed decides the answer, wherever it is decoded."""
    files = tiny("qwen3"), tiny("qwen3", "half right")
    options = {"temperature": 1.0, "seed": 5}
    with (
        Engine.load(*files, **EXACT) as local,
        Engine.load(*files, process=True, **EXACT) as remote,
    ):
        assert answer(local, **options) == answer(remote, **options)
        assert answer(local, **options) != answer(local, temperature=1.0, seed=6)
        plan = "what is free of the memory changes from moment to moment"
        assert replace(local.facts, plan=plan) == replace(remote.facts, plan=plan)


def test_statistics_keep_the_contract(engine: Engine) -> None:
    """Every field is there with its type, and the counts add up."""
    tokens = answer(engine, max_tokens=60)
    figures = engine.stats.as_dict()

    assert {name: type(value) for name, value in figures.items()} == CONTRACT
    histogram = figures["acceptance_histogram"]
    assert sum(histogram) == figures["steps"]
    assert sum(kept * count for kept, count in enumerate(histogram)) == figures["accepted"]
    assert figures["generated_tokens"] == len(tokens) == 60
    assert figures["prompt_tokens"] == len(PROMPT)
    assert 0 < figures["verify_s"] + figures["draft_s"] <= figures["decode_s"]
    assert (engine.stats.drafter, engine.stats.draft_length) == ("suffix+model", "auto")
    assert engine.stats.pass_costs[1] > 0
    assert len(engine.stats.pass_costs) == 65


def test_the_steps_of_both_engines_have_trees(engine: Engine) -> None:
    """As many nodes as were verified; the accepted ones are a path, and emitted."""
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, "draft_length": 3}
    chunks = list(engine.generate(PROMPT, draft_tree=9, drafter="model", **options))
    trees = [each.tree for each in chunks if each.tree]

    assert trees
    assert all(3 < len(tree) <= 9 for tree in trees[:-1])
    assert sum(map(len, trees)) <= engine.stats.nodes <= 9 * engine.stats.steps
    assert engine.stats.nodes > engine.stats.drafted
    for each in chunks:
        path = [number for number, token in enumerate(each.tree, 1) if token.is_accepted]
        assert [each.tree[number - 1].parent for number in path] == [0, *path][: len(path)]
        assert all(0 <= token.parent < number for number, token in enumerate(each.tree, 1))
        if each.tree:
            assert each.tokens[: len(path)] == each.proposed[: len(path)]
            assert {token.origin for token in each.tree} == {"draft"}
    chain = engine.generate(PROMPT, draft_tree="off", drafter="model", **options)
    assert not any(each.tree for each in chain)
    assert engine.stats.nodes == engine.stats.drafted


def test_a_second_question_reuses_the_first(engine: Engine) -> None:
    """Only the new tokens of a longer prompt are evaluated."""
    prompt = [9, 8, 7, 6, 5, 4, 3]
    tokens = answer(engine, prompt)
    answer(engine, [*prompt, *tokens, 50, 51, 52])

    assert engine.stats.cached_tokens == len(prompt) + len(tokens) - 1


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "mamba", "lfm2", "granitehybrid"])
def test_closing_anywhere_leaves_the_next_answer_right(tiny: WriteModel, architecture: str) -> None:
    """After an answer is abandoned at any step, the next one is the same as from a new engine."""
    files = tiny(architecture), tiny(architecture, "half right")
    with Engine.load(*files, **EXACT) as local:
        expected = answer(local, drafter="none")
        other = answer(local, [5, 6, 7], drafter="none")
        for stop_after in range(1, 16):
            stream = local.generate([5, 6, 7], temperature=0.0, max_tokens=40)
            taken = [chunk for _, chunk in zip(range(stop_after), stream, strict=False)]
            stream.close()  # type: ignore[attr-defined]
            tokens = [token for chunk in taken for token in chunk.tokens]
            assert tokens == other[: len(tokens)]
            assert answer(local) == expected


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("is_remote", [False, True])
def test_stopping_keeps_the_text_so_far(tiny: WriteModel, is_remote: bool) -> None:
    """stop() from another thread ends the answer with the reason, and the next one is right."""
    files = tiny("llama"), tiny("llama", "half right")
    with Engine.load(*files, process=is_remote, **EXACT | LONG) as engine:
        expected = answer(engine, max_tokens=300, ignore_end=True)
        stream = engine.generate(PROMPT, temperature=0.0, ignore_end=True)
        chunks = [next(stream)]
        thread = threading.Thread(target=engine.stop)
        thread.start()
        thread.join()
        chunks += stream
        tokens = [token for chunk in chunks for token in chunk.tokens]

        assert chunks[-1].finish == "cancelled"
        assert tokens[:300] == expected[: len(tokens)]
        assert answer(engine, max_tokens=300, ignore_end=True) == expected


def test_an_answer_ends_when_the_context_is_full(engine: Engine) -> None:
    """All of the context is used, and the reason is given."""
    chunks = list(engine.generate(PROMPT, temperature=0.0, ignore_end=True))

    assert chunks[-1].finish == "context"
    assert engine.stats.generated_tokens == 512 - len(PROMPT) + 1


def test_stop_strings_end_the_text_before_them(engine: Engine) -> None:
    """The text ends before the stop string."""
    whole = "".join(chunk.text for chunk in engine.generate(PROMPT, temperature=0.0, max_tokens=60))
    stop = whole[20:23]
    chunks = list(engine.generate(PROMPT, temperature=0.0, max_tokens=60, stop=[stop]))

    assert "".join(chunk.text for chunk in chunks) == whole[: whole.index(stop)]
    assert chunks[-1].finish == "stop"


def test_the_end_token_ends_an_answer(tiny: WriteModel) -> None:
    """The model ends its answer; the end token has no text."""
    files = (tiny(name, can_end=True) for name in ("llama", "llama"))
    with Engine.load(*files, **EXACT) as local:
        answers = (
            list(local.generate(PROMPT, temperature=3.0, seed=seed, max_tokens=200))
            for seed in range(200)
        )
        chunks = next(chunks for chunks in answers if chunks[-1].finish == "stop")
        assert chunks[-1].tokens[-1] in local.model.vocabulary.end_tokens  # type: ignore[attr-defined]
        assert chunks[-1].texts[-1] == "" or "\ufffd" in chunks[-1].texts[-1]


def test_chat_uses_the_models_template(engine: Engine) -> None:
    """A conversation is rendered and its control tokens count as one each."""
    list(engine.chat([{"role": "user", "content": "hi"}], temperature=0.0, max_tokens=3))
    with_two = engine.stats.prompt_tokens
    messages: Any = [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]
    list(engine.chat(messages, temperature=0.0, max_tokens=3))

    assert with_two < engine.stats.prompt_tokens < 3 * with_two


BAD_REQUESTS: list[tuple[Any, dict[str, Any], type[SpecchatError]]] = [
    ([], {}, InvalidOption),
    ("", {}, InvalidOption),
    ([99_999], {}, InvalidOption),
    ([5] * 600, {}, ContextFull),
    (PROMPT, {"temperature": -1.0}, InvalidOption),
    (PROMPT, {"nonsense": 1}, InvalidOption),
    (PROMPT, {"drafter": "unknown"}, InvalidOption),
    (PROMPT, {"draft_length": 65}, InvalidOption),
    (PROMPT, {"seed": -1}, InvalidOption),
]


@pytest.mark.slow(keep=10)
@pytest.mark.parametrize(("prompt", "options", "error"), BAD_REQUESTS, ids=str)
def test_bad_requests_are_refused_without_harm(
    engine: Engine, prompt: Any, options: dict[str, Any], error: type[SpecchatError]
) -> None:
    """Both engines raise the same error and go on working."""
    with pytest.raises(error):
        list(engine.generate(prompt, **options))

    assert len(answer(engine)) == 40


def test_one_answer_at_a_time(engine: Engine) -> None:
    """A second answer while one is in progress is refused."""
    stream = engine.generate(PROMPT, temperature=0.0, max_tokens=40)
    next(stream)
    with pytest.raises(EngineFailed, match="busy"):
        list(engine.generate(PROMPT, max_tokens=5))
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("process", [False, True], ids=["local", "remote"])
def test_load_failures_give_the_reason(tiny: WriteModel, tmp_path: Path, process: bool) -> None:
    """The same errors come from this process and from another one."""
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    unfit = tiny("llama", tokenizer=False)
    for target, draft, error in (
        (tmp_path / "none.gguf", None, ModelNotFound),
        (text, None, ModelWontLoad),
        (tiny("llama"), unfit, IncompatibleDraft),
    ):
        with pytest.raises(error):
            Engine.load(target, draft, process=process, **EXACT)
    with pytest.raises(InvalidOption, match="nonsense"):
        Engine.load(tiny("llama"), process=process, nonsense=1)  # type: ignore[call-arg]


def test_without_a_draft_model_the_reason_is_given(tiny: WriteModel) -> None:
    """Suffix lookup drafts alone, and choosing the draft model is refused."""
    with Engine.load(tiny("llama"), **EXACT) as local:
        assert len(answer(local)) == 40
        assert local.stats.drafter == "suffix"
        assert local.stats.draft_off_reason == "no draft model is loaded"
        assert local.facts.draft_off_reason == local.stats.draft_off_reason
        answer(local, drafter="none")
        assert (local.stats.drafter, local.stats.drafted) == ("none", 0)
        assert local.stats.speculation_off_reason == "switched off"
        with pytest.raises(InvalidOption, match="no draft model"):
            answer(local, drafter="model")


@pytest.mark.slow(keep=1)
@pytest.mark.skipif(sys.platform == "win32", reason="signals are named otherwise there")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_engine_process_is_reported(tiny: WriteModel, number: signal.Signals) -> None:
    """If it is killed in the middle of an answer, the error names the signal."""
    remote = Engine.load(tiny("llama"), process=True, **EXACT | LONG)
    assert isinstance(remote, ProcessEngine)
    stream = remote.generate(PROMPT, ignore_end=True)
    next(stream)
    os.kill(remote._process.pid or 0, number)
    with pytest.raises(EngineFailed, match=number.name):
        list(stream)
    remote.close()
    remote.close()


def test_closing_ends_the_process(tiny: WriteModel) -> None:
    """No process is left, even with an answer in progress."""
    remote = Engine.load(tiny("llama"), process=True, **EXACT | LONG)
    assert isinstance(remote, ProcessEngine)
    stream = remote.generate(PROMPT, ignore_end=True)
    next(stream)
    number = remote._process.pid or 0
    remote.close()

    assert not is_running(number)


ORPHAN = """
import os, sys, time
from specchat import Engine
if __name__ == "__main__":
    engine = Engine.load(sys.argv[1], process=True, ctx=256, threads=1)
    print(engine._process.pid, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are named otherwise there")
def test_an_engine_whose_client_died_ends(tiny: WriteModel, tmp_path: Path) -> None:
    """Killing the client leaves no engine process behind."""
    script = tmp_path / "client.py"
    script.write_text(ORPHAN)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script), str(tiny("llama"))],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    engine_process = int(done.stdout)
    for _ in range(600):
        if not is_running(engine_process):
            return
        time.sleep(0.1)
    pytest.fail("the engine process is still there")


def test_answers_never_mix_and_a_closed_engine_refuses(tiny: WriteModel) -> None:
    """Two answers requested before either began do not share the memory; a closed engine raises."""
    local = Engine.load(tiny("llama"), **EXACT)
    first = local.generate(PROMPT, max_tokens=9)
    second = local.generate([5, 6, 7], max_tokens=9)
    next(first)
    with pytest.raises(EngineFailed, match="busy"):
        next(second)
    local.close()
    with pytest.raises(EngineFailed, match="closed"):
        next(first)
    with pytest.raises(EngineFailed, match="closed"):
        local.generate("hi")


def test_an_exception_in_on_progress_is_raised_by_load(tiny: WriteModel) -> None:
    """The exception passes through llama.cpp unchanged."""

    def interrupt(stage: str, share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Engine.load(tiny("llama"), on_progress=interrupt, **EXACT)


@pytest.mark.slow
def test_names_of_control_tokens_in_a_message_are_text(tiny: WriteModel) -> None:
    """Quoted names cannot end the turn; the template's control tokens still work."""
    with LocalEngine(Loading(tiny("llama"), **EXACT)) as local:
        vocabulary = local.model.vocabulary
        controls = [
            vocabulary.text(token).decode()
            for token in range(vocabulary.size)
            if vocabulary.is_control(token)
        ]

        def num_controls(content: str) -> int:
            tokens = tokenize_chat(local.model, [{"role": "user", "content": content}])
            return sum(map(vocabulary.is_control, tokens))

        assert controls
        assert num_controls("quoted") > 0
        assert num_controls(f"a {' b '.join(controls)} c") == num_controls("quoted")

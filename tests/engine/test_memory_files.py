"""Texts on disk: read once, private, bounded, deleted with conversations, safe when damaged."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from engine.test_heads import WriteHead, heads, opened  # noqa: F401  # a fixture
from engine.test_lossless import EXACT
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.chat.memory_folder import delete_memories, memory_folder
from specchat.chat.store import Store
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine

TEXT = [3 + (7 * place + place // 9) % 240 for place in range(600)]
OTHER = [3 + (11 * place + place // 7) % 240 for place in range(600)]
OPTIONS: dict[str, Any] = {**EXACT, "ctx": 1024, "cache_disk": 64}
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 12}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def files() -> list[Path]:
    """Return the files of memories."""
    return sorted(memory_folder().glob("*.memory"))


def answer(engine: Engine, prompt: list[int] = TEXT, **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    return [
        token for chunk in engine.generate(prompt, **GREEDY | options) for token in chunk.tokens
    ]


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_text_goes_on_in_another_process_without_being_read(
    shallow: WriteModel, architecture: str
) -> None:
    """Its answer is the one without the file, with a draft, for every way to roll back."""
    loading = Loading(shallow(architecture), shallow(architecture, "half right"), **OPTIONS)
    with LocalEngine(loading) as engine:
        first = answer(engine)
        following = [*TEXT, *first, 9, 99]
        expected = answer(engine, following)
        engine.forget()
        answer(engine)
    (path,) = files()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with LocalEngine(loading) as engine:
        assert answer(engine, following) == expected
        assert engine.stats.cached_tokens >= len(TEXT)
    assert len(files()) == 1  # the longer text has replaced its beginning


@pytest.mark.parametrize("kind", ["qwen35", "mimo2 in turn"])
def test_a_head_finds_what_it_had_not_read(heads: WriteHead, kind: str) -> None:  # noqa: F811
    """Its drafts are accepted as they were."""
    loaded = heads(kind, noise=0.01, num_layers=2)
    options: dict[str, Any] = {"drafter": "head", "draft_length": 3}
    with opened(loaded, **OPTIONS) as engine:
        following = [*TEXT, *answer(engine, **options), 9]
        expected = answer(engine, following, **options)
        accepted = engine.stats.accepted
        engine.forget()
        answer(engine, **options)
    with opened(loaded, **OPTIONS) as engine:
        assert answer(engine, following, **options) == expected
        assert engine.stats.cached_tokens >= len(TEXT)
        assert engine.stats.accepted == accepted > 0


def test_an_answer_with_a_seed_reads_nothing_again_that_has_its_bits(shallow: WriteModel) -> None:
    """Those of the pair as it was loaded then; loaded in another way, it reads all of it."""
    path = shallow("llama", quantisation="q8_0", width=256, feed_forward=256)
    seeded: dict[str, Any] = {
        "seed": 3, "temperature": 0.9, "max_tokens": 12, "alternatives": 3, "ignore_end": True,
    }  # fmt: skip
    cached, bits = [], []
    for threads in (1, 1, 2):
        with LocalEngine(Loading(path, path, **{**OPTIONS, "threads": threads})) as engine:
            assert engine.prepare(only_exactness=True)
            chunks = list(engine.generate(TEXT, **seeded))
            bits.append([likely for chunk in chunks for likely in chunk.alternatives])
            cached.append(engine.stats.cached_tokens)

    assert bits[0] == bits[1]
    assert cached == [0, len(TEXT) - 1, 0]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("how", ["a byte", "the end", "the header", "the length", "everything"])
def test_a_damaged_file_is_deleted_and_its_text_read_again(shallow: WriteModel, how: str) -> None:
    """With the same answer."""
    loading = Loading(shallow("llama"), **OPTIONS)
    with LocalEngine(loading) as engine:
        expected = answer(engine)
    (path,) = files()
    data = bytearray(path.read_bytes())
    if how == "a byte":
        data[-5000] ^= 1
    elif how == "the end":
        del data[-3000:]
    elif how == "the header":
        data[200:210] = b"x" * 10
    elif how == "the length":
        data[:4] = b"9999"
    else:
        data[:] = np.random.default_rng(0).bytes(9000)
    path.write_bytes(data)
    with LocalEngine(Loading(shallow("llama"), **{**OPTIONS, "cache_disk": 63})) as engine:
        assert answer(engine, [*TEXT, 9]) != []
        assert engine.stats.cached_tokens == 0
        engine.forget()
        assert answer(engine) == expected


def test_a_file_of_another_pair_or_way_of_loading_is_not_used(shallow: WriteModel) -> None:
    """Another model, another type of cache."""
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        answer(engine)
    others = [
        Loading(shallow("qwen3"), **OPTIONS),
        Loading(shallow("llama"), **{**OPTIONS, "cache_type": "f16"}),
        Loading(shallow("llama"), shallow("llama", "wrong"), **OPTIONS),
    ]
    for loading in others:
        with LocalEngine(loading) as engine:
            answer(engine)
            assert engine.stats.cached_tokens == 0


def test_files_need_no_room_for_texts_set_aside(shallow: WriteModel) -> None:
    """With `cache_ram` 0 a text is still reopened, and nothing of it stays beside the memory."""
    loading = Loading(shallow("llama"), **{**OPTIONS, "cache_ram": 0})
    with LocalEngine(loading) as engine:
        following = [*TEXT, *answer(engine), 9]
        expected = answer(engine, following)
    with LocalEngine(loading) as engine:
        assert answer(engine, [*TEXT, 7]) != []
        assert engine.stats.cached_tokens == len(TEXT)
        assert len(engine.parked) == 0
        assert answer(engine, following) == expected


def test_files_stay_within_their_limit(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was used least recently goes; short texts and limits of 0 write none."""
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        answer(engine, TEXT[:100])
    assert files() == []
    with LocalEngine(Loading(shallow("llama"), **{**OPTIONS, "cache_disk": 0})) as engine:
        answer(engine)
    assert files() == []
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        answer(engine)
        engine.keep()
        (first,) = files()
        assert engine.parked._files is not None
        monkeypatch.setattr(engine.parked._files, "_limit", int(1.5 * first.stat().st_size))
        answer(engine, OTHER)
        engine.keep()
        assert len(files()) == 1
        assert files() != [first]


def test_what_was_deleted_is_not_written_again(shallow: WriteModel, tmp_path: Path) -> None:
    """Neither from the memory nor from a text set aside; what is read later is."""
    with LocalEngine(Loading(shallow("llama"), **OPTIONS)) as engine:
        answer(engine)
        answer(engine, OTHER)
        engine.keep()
        assert len(files()) == 2
        delete_memories()
        assert files() == []
        engine.keep()
        assert files() == []
        answer(engine, [*OTHER, 9])
    assert len(files()) == 1
    with Store(tmp_path / "history.db") as store:
        number = store.begin().id
        store.delete(number)
        store.purge()
        assert len(files()) == 1
        store.purge(0.0)
        assert files() == []

"""The limits, tables and placements of scripts/measure/measure_gpu.py."""

from pathlib import Path

import pytest

from conftest import WriteModel
from scripts.support import placed_mixture
from scripts.support.made_pair import MixtureShape
from scripts.support.placed_mixture import WHOLE, shape_for, ways_to_place, write_mixture
from scripts.support.reading_limit import EMBEDDINGS, Answer, Limit, limit_of, table
from specchat.cli.placement_tuning import Timed
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.gguf.reader import read_header
from specchat.planning.device import Device

GB = 10**9
GIB = 2**30
SMALL = MixtureShape(
    layers=4, width=256, heads=2, kv_heads=1, feed_forward=256, vocabulary=600, experts=128,
    experts_used=2,
)  # fmt: skip


def test_the_limit_is_what_the_memory_can_read() -> None:
    """A step reads the target once and the draft once per drafted token."""
    limit = Limit(target=4 * GB, draft=GB, bandwidth=1000.0 * GB)
    plain = Answer(rate=200.0, tokens=100, steps=100, drafted=0)
    assert limit.rate(plain) == pytest.approx(250)
    drafting = Answer(rate=300.0, tokens=100, steps=40, drafted=160)
    assert limit.rate(drafting) == pytest.approx(2.5 * 1000 / (4 + 4))


def test_a_table_has_medians_and_shares() -> None:
    """The speedup is over plain decoding; without a bandwidth the limit is unknown."""
    answers = {
        "plain": [Answer(rate, 100, 100, 0) for rate in (90.0, 100.0, 140.0)],
        "auto": [Answer(150.0, 100, 50, 100)],
    }
    *_, plain, auto = table(answers, Limit(4 * GB, GB, 1000.0 * GB))
    assert plain == "| plain | 100.0 | 1.00 | 1.00 | 250.0 | 40% |"
    assert auto == "| auto | 150.0 | 1.50 | 2.00 | 333.3 | 45% |"
    assert next(iter(reversed(list(table(answers, Limit(4 * GB, GB, 0.0)))))).endswith(
        "| unknown |  |"
    )


def test_a_pass_reads_all_weights_but_the_embeddings(tiny: WriteModel) -> None:
    """Of the embeddings it reads one row per token."""
    target, draft = tiny("llama"), tiny("llama", num_layers=2)
    folder = target.parent / "pair"
    folder.mkdir()
    (folder / "target.gguf").symlink_to(target)
    (folder / "draft.gguf").symlink_to(draft)
    limit = limit_of(folder, 1.0)
    header = read_header(target)
    assert limit.target == header.num_bytes - header.tensors[EMBEDDINGS].num_bytes
    assert limit.draft < limit.target


def test_a_mixture_is_twice_as_large_as_the_gpu() -> None:
    """As large as the whole model at most, and of two layers at least."""
    assert shape_for(8 * GIB) == shape_for(80 * GIB) == WHOLE
    assert (shape_for(GIB).layers, shape_for(1).layers) == (6, 2)


def test_a_mixture_is_placed_by_layers_and_by_experts(tmp_path: Path) -> None:
    """In a GPU that holds about half of it; the file is a model that decodes."""
    path = write_mixture(tmp_path, SMALL)
    header = read_header(path)
    assert header.tensors["blk.3.ffn_down_exps.weight"].shape == (256, 256, 128)
    assert header.active_share == 2 / 128
    gpu = Device("GPU0", "", "gpu", 16 * GIB, 16 * GIB)
    host = Device("CPU", "", "cpu", 64 * GIB, 64 * GIB)
    memory = header.num_bytes // 2 + 32 * 2**20  # what a pass works with is large beside this model
    loading, predicted = ways_to_place(path, gpu, host, memory)
    assert [plan.way.partition(",")[0] for plan in predicted] == ["layers", "experts"]
    layers, experts = predicted
    assert 0 < layers.gpu_layers < 5 == experts.gpu_layers
    assert 0 < experts.on_host.num_blocks <= 4
    with LocalEngine(Loading(path, ctx=256, threads=1, learn=False)) as engine:
        chunks = engine.generate("a few words", max_tokens=8, ignore_end=True)
        assert sum(len(chunk.tokens) for chunk in chunks) == 8

    timed = [Timed("half of the layers", layers.way, 0.1, 10.0, 50.0)]
    timed.append(Timed("without experts", experts.way, 0.05, 20.0, 90.0))
    lines = list(placed_mixture.table(predicted, timed))[2:]
    assert lines == [
        f"| without experts | {predicted[experts]:.1f} | 20.0 | 90.0 |",
        f"| half of the layers | {predicted[layers]:.1f} | 10.0 | 50.0 |",
    ]
    assert loading.ctx == placed_mixture.CONTEXT

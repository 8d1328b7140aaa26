"""The limits and tables of scripts/measure/measure_gpu.py."""

import pytest

from conftest import WriteModel
from scripts.support.reading_limit import EMBEDDINGS, Answer, Limit, limit_of, table
from specchat.gguf.reader import read_header

GB = 10**9


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

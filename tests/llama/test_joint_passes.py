"""Passes over several texts of real llama.cpp give each text the logits that it has alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.decoding.draft_passes import TargetPass
from specchat.errors import Cancelled
from specchat.llama import tinyblas
from specchat.llama.context import Context
from specchat.llama.joint_passes import JointPasses
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.text_memory import TextMemory
from specchat.passes.exact_passes import LONGEST_COMPARED
from specchat.planning.context_shape import ModelOptions, shape_context
from tables import table

OPTIONS = ModelOptions(ctx=512, flash_attention="off", cache_type="f32", threads=1)
TOLERANCE = 0.02
"""Logits of the tiny models have a standard deviation of about 5; wrong ones are off by 5 to 24."""
EXACT = ["llama", "qwen3"]
"""Architectures whose tiny files give the same bits in all passes of up to a few tokens."""


def texts_of(count: int) -> list[list[int]]:
    """Return texts of different lengths."""
    random = np.random.default_rng(5)
    return [random.integers(3, 250, 20 + 9 * number).tolist() for number in range(count)]


@contextmanager
def memories(
    tiny: WriteModel, architecture: str, count: int, abort: AbortFlag | None = None
) -> Iterator[list[TextMemory]]:
    """Make a context of several texts."""
    with Model(tiny(architecture), OPTIONS) as model:
        shape = replace(
            shape_context(model.sizes.layout, OPTIONS, is_on_gpu=False), num_texts=count
        )
        with Context(model, OPTIONS, abort, shape=shape) as first:
            yield [first, *(TextMemory(first.native, number) for number in range(1, count))]


def rows_alone(
    tiny: WriteModel, architecture: str, before: Sequence[int], tokens: Sequence[int]
) -> Any:
    """Return the logits after each token, read one by one in a context of one text."""
    with Model(tiny(architecture), OPTIONS) as model, Context(model, OPTIONS) as context:
        context.prefill(before)
        return np.array([context.evaluate([token], 1)[0].copy() for token in tokens])


def rows_of(joint: JointPasses, passes: Sequence[TargetPass]) -> list[Any]:
    """Return copies of the rows of passes, made as one where that may be."""
    if joint.may_join(passes):
        return [np.array(rows) for rows in joint.run(passes)]
    return [np.array(each.make().rows) for each in passes]


@table("architecture", ARCHITECTURES)
def test_each_text_has_the_rows_that_it_has_alone(tiny: WriteModel, architecture: str) -> None:
    """Texts take part with drafts of different lengths, of which some tokens are rejected."""
    random = np.random.default_rng(2)
    with memories(tiny, architecture, 3) as texts:
        joint, known = JointPasses(texts, float), texts_of(3)
        for text, tokens in zip(texts, known, strict=True):
            text.prefill(tokens)
        for _ in range(6):
            taking = [number for number in range(3) if random.random() < 0.8] or [1]
            drafts = {number: random.integers(3, 250, 1 + random.integers(5)) for number in taking}
            passes = []
            for number in taking:
                texts[number].mark()
                tokens = drafts[number].tolist()
                passes.append(TargetPass(texts[number], tokens, len(tokens)))
            for number, rows in zip(taking, rows_of(joint, passes), strict=True):
                wanted = rows_alone(tiny, architecture, known[number], drafts[number].tolist())
                assert rows == pytest.approx(wanted, abs=TOLERANCE)
            for number in taking:
                kept = int(random.integers(1, len(drafts[number]) + 1))
                known[number] += drafts[number][:kept].tolist()
                texts[number].rollback(len(known[number]))
            joint.settle()
            assert [text.tokens for text in texts] == known


@table("architecture", EXACT)
def test_the_bits_of_a_text_do_not_depend_on_the_others(
    tiny: WriteModel, architecture: str
) -> None:
    """Up to the longest exact pass, each row is bit for bit the one of a pass over one token."""
    with memories(tiny, architecture, 3) as texts, tinyblas.left_out(LONGEST_COMPARED):
        joint, tokens = JointPasses(texts, float), list(range(50, 58))
        wanted = [rows_alone(tiny, architecture, own, tokens) for own in texts_of(3)]
        for text, own in zip(texts, texts_of(3), strict=True):
            text.prefill(own)
        for step, token in enumerate(tokens):
            passes = [TargetPass(text, [token], 1) for text in texts]
            for alone, rows in zip(wanted, joint.run(passes), strict=True):
                assert np.array_equal(rows[0], alone[step])


@table("architecture", ARCHITECTURES)
def test_prompts_are_read_between_the_passes_of_others(tiny: WriteModel, architecture: str) -> None:
    """A text that is read in parts, with shared passes of the others in between, is right."""
    with memories(tiny, architecture, 3) as texts:
        joint, known = JointPasses(texts, float), texts_of(3)
        for text, tokens in zip(texts[:2], known[:2], strict=True):
            text.prefill(tokens)
        long = np.random.default_rng(8).integers(3, 250, 400).tolist()
        for _ in texts[2].reading(long, None, lambda: True):
            joint.run([TargetPass(text, [77], 1) for text in texts[:2]])
            for own in known[:2]:
                own.append(77)
        rows = joint.run([TargetPass(text, [99], 1) for text in texts])
        for row, tokens in zip(rows, [*known[:2], long], strict=True):
            wanted = rows_alone(tiny, architecture, tokens, [99])
            assert np.array(row) == pytest.approx(wanted, abs=TOLERANCE)


@table("architecture", ARCHITECTURES)
def test_a_pass_that_is_stopped_leaves_each_text_as_it_was(
    tiny: WriteModel, architecture: str
) -> None:
    """After an abort, the same pass gives what it would have given; others are as they were."""
    abort = AbortFlag()
    with memories(tiny, architecture, 3, abort) as texts:
        joint, known = JointPasses(texts, float), texts_of(3)
        for number in (0, 2, 1):  # the last one comes between those of the pass
            texts[number].prefill(known[number])
            texts[number].mark()
        passes = [TargetPass(text, [60, 61, 62], 3) for text in texts[:2]]
        abort.set()
        with pytest.raises(Cancelled):
            joint.run(passes)
        abort.clear()
        assert [text.tokens for text in texts] == known
        found = [np.array(rows) for rows in joint.run(passes)]
        found.append(np.array(texts[2].evaluate([60], 1)))
        for own, rows in zip(known, found, strict=True):
            wanted = rows_alone(tiny, architecture, own, [60, 61, 62][: len(rows)])
            assert rows == pytest.approx(wanted, abs=TOLERANCE)
        abort.set()
        with pytest.raises(Cancelled):
            joint.run([TargetPass(text, [70, 71], 2) for text in texts[:2]])
        abort.clear()
        for text, own in zip(texts, known, strict=True):
            before = own[:-1]  # from where it was restored: the states of the pass before are gone
            text.rollback(len(before))
            wanted = rows_alone(tiny, architecture, before, [80])
            assert np.array(text.evaluate([80], 1)) == pytest.approx(wanted, abs=TOLERANCE)


@table("architecture", ARCHITECTURES)
def test_a_copy_of_one_text_can_be_restored_in_the_place_of_another(
    tiny: WriteModel, architecture: str
) -> None:
    """The others keep what they hold."""
    with memories(tiny, architecture, 3) as texts:
        joint, known = JointPasses(texts, float), texts_of(3)
        for text, tokens in zip(texts, known, strict=True):
            text.prefill(tokens)
        texts[2].restore(texts[0].snapshot())
        rows = joint.run([TargetPass(text, [99], 1) for text in texts])
        for own, tokens in zip(rows, [known[0], known[1], known[0]], strict=True):
            wanted = rows_alone(tiny, architecture, tokens, [99])
            assert np.array(own) == pytest.approx(wanted, abs=TOLERANCE)


@table("architecture", ARCHITECTURES)
def test_a_text_begins_with_a_copy_of_the_beginning_of_another_one(
    tiny: WriteModel, architecture: str
) -> None:
    """As far as the memory can step back; the other text, and a third one, stay as they are."""
    random = np.random.default_rng(3)
    common, *rest = (random.integers(3, 250, count).tolist() for count in (60, 40, 20))
    one, other = ([*common, *each] for each in rest)
    with memories(tiny, architecture, 3) as texts:
        joint, known = JointPasses(texts, float), texts_of(3)
        texts[0].prefill(common)  # a state is kept there
        texts[0].prefill(one)
        texts[1].prefill(known[1])
        texts[2].prefill(known[2])
        assert texts[0].shared_by(other) == 60
        texts[1].restore(texts[0].snapshot())
        assert texts[1].tokens == one
        assert texts[1].prefill(other) == 60
        given = [(texts[0], one), (texts[1], other), (texts[2], known[2])]
        rows = joint.run([TargetPass(text, [99], 1) for text, _ in given])
        for row, (_, tokens) in zip(rows, given, strict=True):
            wanted = rows_alone(tiny, architecture, tokens, [99])
            assert np.array(row) == pytest.approx(wanted, abs=TOLERANCE)
        for text, tokens in given:
            text.rollback(len(tokens))
            joint.settle()
            wanted = rows_alone(tiny, architecture, tokens, [98])
            assert np.array(text.evaluate([98], 1)) == pytest.approx(wanted, abs=TOLERANCE)


def test_a_copied_window_steps_back_to_a_state_that_left_it(tiny: WriteModel) -> None:
    """A state is restored before the next pass, and a copy that is taken then is whole, too."""
    random = np.random.default_rng(3)
    common, *rest = (random.integers(3, 250, count).tolist() for count in (60, 400, 20))
    one, other = ([*common, *each] for each in rest)
    wanted = rows_alone(tiny, "gemma3", [*common], [*rest[1], 99])[-1]
    with memories(tiny, "gemma3", 3) as texts:
        texts[0].prefill(common)
        texts[0].prefill(one)
        texts[1].restore(texts[0].snapshot())
        assert texts[1].prefill(other[:60]) == 60
        texts[2].restore(texts[1].snapshot())
        for text in texts[1:]:
            assert text.prefill(other) == 60
            assert text.evaluate([99], 1)[0] == pytest.approx(wanted, abs=TOLERANCE)


@table("architecture", ["llama", "gemma3", "qwen35", "lfm2"])
def test_a_copy_is_of_the_text_without_the_draft_that_was_rejected(
    tiny: WriteModel, architecture: str
) -> None:
    """A hybrid's step back, which waits for its next pass, is in it."""
    text = texts_of(1)[0]
    wanted = rows_alone(tiny, architecture, text, [11, 99])[-1]
    with memories(tiny, architecture, 2) as texts:
        texts[0].prefill(text)
        texts[0].evaluate([11, 12, 13], 3)
        texts[0].rollback(len(text) + 1)
        texts[1].restore(texts[0].snapshot())
        assert texts[1].tokens == [*text, 11]
        assert texts[1].evaluate([99], 1)[0] == pytest.approx(wanted, abs=TOLERANCE)


@table("architecture", EXACT)
def test_a_copied_beginning_has_the_bits_of_one_that_was_read(
    tiny: WriteModel, architecture: str
) -> None:
    """In the same passes: each row after it is bit for bit that of the text alone."""
    common, tokens = texts_of(4)[3], list(range(50, 58))
    with memories(tiny, architecture, 3) as texts, tinyblas.left_out(LONGEST_COMPARED):
        texts[2].prefill(common)
        for token in tokens[::-1]:
            texts[2].evaluate([token], 1)
        texts[0].restore(texts[2].snapshot())
        texts[0].rollback(len(common))
        wanted = rows_alone(tiny, architecture, common, tokens)
        for token, row in zip(tokens, wanted, strict=True):
            assert np.array_equal(texts[0].evaluate([token], 1)[0], row)


def test_what_repeats_is_shared_in_whole_passes(tiny: WriteModel) -> None:
    """Other passes give other bits."""
    text = list(range(3, 250)) * 2
    with memories(tiny, "llama", 2) as texts:
        first = texts[0]
        chunk = first.native.chunk = first._chunk = 64
        first.prefill(text[:150])
        assert first.shared_by(text) == 150
        assert first.shared_by(text, repeats=True) == 2 * chunk
        first.prefill([])
        first.prefill(text[:100])
        first.prefill(text[:150])
        assert first.shared_by(text, repeats=True) == chunk


@table("architecture", ARCHITECTURES)
def test_the_places_of_texts_are_of_no_matter(tiny: WriteModel, architecture: str) -> None:
    """In whatever order they came, all can step back within their last pass.

    llama.cpp moves recurrent states so that those of a pass follow each other.
    """
    with memories(tiny, architecture, 3) as texts:
        joint, drafts = JointPasses(texts, float), [[61, 62, 63, 64], [71, 72], [81, 82]]
        for order, taking in product(permutations(range(3)), [(0, 1), (0, 1, 2)]):
            known = texts_of(3)
            for text in texts:
                text.prefill([])
            for number in order:
                texts[number].prefill(known[number])
                texts[number].mark()
            if 2 not in taking:
                texts[2].evaluate([50, 51, 52], 3)
            rows_of(joint, [TargetPass(texts[each], drafts[each], 1) for each in taking])
            for number in taking:
                known[number] += drafts[number][:1]
                texts[number].rollback(len(known[number]))
            joint.settle()
            if 2 not in taking:
                known[2] += [50, 51]
                texts[2].rollback(len(known[2]))
            for text, own in zip(texts, known, strict=True):
                wanted = rows_alone(tiny, architecture, own, [99])
                assert np.array(text.evaluate([99], 1)) == pytest.approx(wanted, abs=TOLERANCE)


@table(("architecture", "length"), product(ARCHITECTURES, (21, 14)))
def test_a_text_that_waits_after_a_rollback_is_moved_by_the_passes_of_others(
    tiny: WriteModel, architecture: str, length: int
) -> None:
    """It has stepped back within its last pass, or into its prompt, when others share a pass.

    Where that took a saved state, the tokens behind it wait to be read again: its next pass does.
    """
    random = np.random.default_rng(4)
    prompts = [random.integers(3, 250, 20).tolist() for _ in range(3)]
    draft, known_rows = [61, 62, 63], dict[tuple[int, ...], Any]()

    def row_after(text: list[int]) -> Any:
        if tuple(text) not in known_rows:
            known_rows[tuple(text)] = rows_alone(tiny, architecture, text, [99])
        return pytest.approx(known_rows[tuple(text)], abs=TOLERANCE)

    with memories(tiny, architecture, 3) as texts:
        joint = JointPasses(texts, float)
        for order, waiting in product(((0, 1, 2), (2, 0, 1), (1, 2, 0)), range(3)):
            for text in texts:
                text.prefill([])
            for number in order:
                texts[number].prefill(prompts[number][:12])  # a state is kept there
                texts[number].prefill(prompts[number])
                texts[number].mark()
            texts[waiting].evaluate(draft, len(draft))
            texts[waiting].rollback(length)
            taking = [number for number in range(3) if number != waiting]
            rows_of(joint, [TargetPass(texts[number], draft, 3) for number in taking])
            for number in taking:
                texts[number].rollback(21)
            joint.settle()
            known = [[*prompts[number], draft[0]] for number in range(3)]
            known[waiting] = known[waiting][:length]
            assert [text.tokens for text in texts] == known
            passes = [TargetPass(text, [99], 1) for text in texts]
            for own, rows in zip(known, rows_of(joint, passes), strict=True):
                assert np.array(rows) == row_after(own)


@table("architecture", ARCHITECTURES)
def test_the_memory_of_several_texts_is_as_large_as_planned(
    tiny: WriteModel, architecture: str
) -> None:
    """Each text has a cache of its own."""
    with memories(tiny, architecture, 1) as texts:
        sizes, shape = texts[0].model.sizes, texts[0].shape
        assert sizes.cache(replace(shape, num_texts=4)) == 4 * sizes.cache(shape)


def test_padding_goes_no_further_than_a_hybrid_can_step_back(tiny: WriteModel) -> None:
    """Where all passes cost the same, parts are padded; what is written is not read again."""
    with Model(tiny("qwen35"), OPTIONS) as model:
        shape = shape_context(model.sizes.layout, OPTIONS, is_on_gpu=False)
        shape = replace(shape, num_texts=2, num_steps_back=3)
        with Context(model, OPTIONS, shape=shape) as first:
            texts = [first, TextMemory(first.native, 1)]
            joint, known = JointPasses(texts, lambda _: 1.0), texts_of(2)
            for text, tokens in zip(texts, known, strict=True):
                text.prefill(tokens)
            for count in (1, 2, 4, 5, 8):
                new = [[50], list(range(60, 60 + count))]
                passes = [TargetPass(text, own, 1) for text, own in zip(texts, new, strict=True)]
                assert joint.may_join(passes) == (count <= 4)
                rows = rows_of(joint, passes)
                joint.settle()
                for number, own in enumerate(new):
                    before, known[number] = known[number], known[number] + own
                    wanted = rows_alone(tiny, "qwen35", before, own)
                    assert np.array(rows[number][-1]) == pytest.approx(wanted[-1], abs=TOLERANCE)
                    assert texts[number].num_waiting == 0
                    assert texts[number].tokens == known[number]


@table("architecture", ARCHITECTURES)
def test_padded_parts_are_right(tiny: WriteModel, architecture: str) -> None:
    """Drafts of different lengths, all padded to the longest; some tokens are rejected."""
    with memories(tiny, architecture, 3) as texts:
        joint, known = JointPasses(texts, lambda _: 1.0), texts_of(3)
        for text, tokens in zip(texts, known, strict=True):
            text.prefill(tokens)
        for step in range(5):
            drafts = [[40 + step, *range(70, 70 + (number + step) % 4)] for number in range(3)]
            for text in texts:
                text.mark()
            passes = [
                TargetPass(text, own, len(own)) for text, own in zip(texts, drafts, strict=True)
            ]
            found = rows_of(joint, passes)
            for number, own in enumerate(drafts):
                wanted = rows_alone(tiny, architecture, known[number], own)
                assert found[number] == pytest.approx(wanted, abs=TOLERANCE)
                known[number] += own[: 1 + step % len(own)]
                texts[number].rollback(len(known[number]))
            joint.settle()
            assert [text.tokens for text in texts] == known

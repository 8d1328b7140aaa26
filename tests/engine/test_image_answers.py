"""Answers after images are those of plain decoding in every way that answers are made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_images import (  # noqa: F401  # a fixture
    WriteProjector,
    answer,
    loaded,
    projector,
    text_about,
)
from engine.test_lossless import _same_numbers_in_every_run, first_tokens, homogeneity
from image_files import image
from other_vocabulary import write_copy
from scripts.support.tiny_gguf import Vocabulary
from scripts.support.tiny_gguf.projectors import MARKERS
from specchat import Image
from specchat.decoding.request import Request
from specchat.decoding.verification import Verdict
from specchat.engine.local_engine import LocalEngine
from specchat.images.picture import Picture, picture_of
from specchat.llama import kept_images, mtmd_library, vision
from specchat.requests.answer_request import GenerateRequest
from tables import table

pytestmark = pytest.mark.usefixtures("image_library")
__all__ = ["_same_numbers_in_every_run"]  # a fixture
SEEDED: dict[str, Any] = {"temperature": 0.9, "max_tokens": 24}
PAIRS = {
    "llama": "mlp",
    "gemma3": "gemma3",
    "qwen2vl": "qwen2vl_merger",
    "qwen3vl": "qwen3vl_merger",
    "qwen35": "qwen3vl_merger",
    "qwen3": "internvl",
    "qwen3moe": "pixtral",
    "lfm2": "pixtral",
    "gemma4": "gemma4v",
    "mamba": "internvl",
    "granitehybrid": "mlp",
    "llama with markers": "idefics3",
}
"""A kind of projector for each family."""
TAILS = {"llama", "qwen2vl", "qwen3vl", "qwen3", "qwen3moe", "llama with markers"}
"""Families whose memory returns to any place without reading anything again."""


def files_of(shallow: WriteModel, projector: WriteProjector, family: str) -> dict[str, Path]:  # noqa: F811
    """Return a target, a draft model that is half right, and a projector."""
    architecture, options = family, dict[str, Any]()
    if family.endswith("with markers"):
        architecture, options = "llama", {"vocabulary": Vocabulary(markers=MARKERS)}
    return {
        "target": shallow(architecture, **options),
        "draft": shallow(architecture, "half right", **options),
        "projector": projector(PAIRS[family], is_deep=family == "qwen3vl"),
    }


def size_for(family: str) -> tuple[int, int]:
    """Return a size of images, which is not a square where the family tells."""
    return (64, 64) if PAIRS[family] in {"mlp", "gemma3"} else (96, 160)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("family", PAIRS)
def test_questions_about_images_have_one_answer(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
) -> None:
    """Two images, one of them exchanged, the question behind them edited; whatever drafts."""
    first, second, other = (image(seed, size_for(family)) for seed in range(3))
    questions: list[tuple[Sequence[Image], str]] = [
        ([first], " which colour"),
        ([first, second], ""),
        ([first, second], " which colour"),
        ([first, second], " what a shape"),
        ([first, other], " what a shape"),
        ([other, second], ""),
    ]
    with loaded(files_of(shallow, projector, family), exact="off") as engine:
        plain = [answer(engine, *shown, more=more, drafter="none") for shown, more in questions]
        assert len(set(plain)) > 3
        ways: list[dict[str, Any]] = [
            {"drafter": "model", "draft_length": 3},
            {"drafter": "suffix", "draft_length": 6},
            {"drafter": "auto"},
            {"drafter": "model", "draft_length": 3, "draft_tree": 14},
        ]
        for drafting in ways:
            engine.forget()
            for (shown, more), wanted in zip(questions, plain, strict=True):
                assert answer(engine, *shown, more=more, **drafting) == wanted
                if more == " what a shape" and shown[1] is second and family in TAILS:
                    assert engine.stats.cached_tokens > engine.stats.image_tokens
            if "draft_tree" in drafting and family in TAILS:
                assert engine.stats.nodes > engine.stats.drafted


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "qwen2vl"])
def test_samples_after_an_image_are_distributed_as_plain_ones(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without seeds and with them (false alarm 1e-4), and a broken verifier's are not."""
    shown = image(1, size_for(family))
    about: dict[str, Any] = {"prompt": text_about(shown), "images": [shown]}
    with loaded(files_of(shallow, projector, family)) as engine:
        plain, _ = first_tokens(engine, "none", 1500, seed=10_000, **about)
        for seed, num_answers in ((None, 1500), (50_000, 800)):
            drafted, num_drafted = first_tokens(engine, "model", num_answers, seed, **about)
            assert homogeneity(plain, drafted) > 1e-4
            assert num_drafted > num_answers

        def accept_always(draft: Any, target: Any, random: Any) -> Verdict:
            return Verdict(len(draft), target(len(draft)).sample(random))

        monkeypatch.setattr(Request, "verifier_at", lambda *_: accept_always)
        broken, _ = first_tokens(engine, "model", 500, **about)
        assert homogeneity(plain, broken) < 1e-9


@table("family", ["llama", "gemma3", "qwen2vl", "qwen35", "granitehybrid"])
def test_a_seed_has_one_text_after_images(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
) -> None:
    """Whatever drafts, whatever is in memory, and with trees."""
    shown = [image(seed, size_for(family)) for seed in range(2)]
    texts = set()
    with loaded(files_of(shallow, projector, family), exact="off") as engine:
        for seed in range(4):
            options = SEEDED | {"seed": seed}
            plain = answer(engine, *shown, drafter="none", **options)
            texts.add(plain)
            ways: list[dict[str, Any]] = [
                {"drafter": "model", "draft_length": 1 + seed},
                {"drafter": "suffix", "draft_length": 4},
                {"drafter": "auto", "draft_tree": 14, "draft_length": 3},
            ]
            for drafting in ways:
                assert answer(engine, *shown, **drafting, **options) == plain
            answer(engine, shown[1], **options)
    assert len(texts) == 4


def bits(engine: LocalEngine, *shown: Image, **options: Any) -> list[Any]:
    """Return the probabilities of an answer's tokens."""
    asked = {**SEEDED, "seed": 3, "alternatives": 3, **options}
    chunks = engine.generate(text_about(*shown), images=shown, **asked)
    return [each for chunk in chunks for each in chunk.alternatives]


@table("family", ["llama", "gemma3", "qwen2vl", "qwen35", "granitehybrid", "gemma4"])
def test_exact_answers_after_images_have_the_bits_of_plain_decoding(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
) -> None:
    """From an empty memory, from the cache, after another image, and with drafts."""
    shown, other = (image(seed, size_for(family)) for seed in range(2))
    with loaded(files_of(shallow, projector, family), exact="on") as engine:
        engine.prepare(only_exactness=True)
        wanted = bits(engine, shown, other, drafter="none")
        assert wanted
        for drafter in ("none", "auto", "model" if engine.facts.exact_draft else "auto"):
            assert bits(engine, shown, other, drafter=drafter) == wanted
            bits(engine, shown, drafter=drafter)
            assert bits(engine, shown, other, drafter=drafter) == wanted
            engine.forget()
            assert bits(engine, shown, other, drafter=drafter) == wanted


@table("family", ["llama", "gemma3", "qwen2vl", "qwen35"])
def test_answers_decoded_together_are_those_they_are_alone(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
) -> None:
    """Each about an image of its own, one about none, one about two; drafts read them, too."""
    first, second = (image(seed, size_for(family)) for seed in range(2))
    requests = [
        GenerateRequest(
            text_about(*shown) if shown else "and then what is this?",
            images=shown,
            draft_length=3,
            ignore_end=True,
            **SEEDED | {"seed": number},
        )
        for number, shown in enumerate(([first], [], [second, first], [second]))
    ]
    own = projector(PAIRS[family], gain=1.0001)
    with loaded(files_of(shallow, projector, family), draft_projector=own, at_once=4) as engine:
        alone = [
            [token for update in engine.begin(each) for chunk in update.chunks
             for token in chunk.tokens]
            for each in requests
        ]  # fmt: skip
        for _ in range(2):
            tokens: list[list[int]] = [[] for _ in requests]
            for number, update in engine.begin_together(requests):
                assert update.error is None
                tokens[number] += [token for chunk in update.chunks for token in chunk.tokens]
            assert tokens == alone
            engine.forget()


def test_encoded_images_are_kept_within_a_budget(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those in it are not encoded twice; a question about more of them than fit is answered."""
    encoded: list[Any] = []
    encode = vision.Vision._encoded

    def counted(self: vision.Vision, chunk: Any) -> Any:
        encoded.append(chunk)
        return encode(self, chunk)

    monkeypatch.setattr(vision.Vision, "_encoded", counted)
    shown = [image(seed, (64, 64)) for seed in range(4)]
    with loaded(files_of(shallow, projector, "llama")) as engine:
        wanted = answer(engine, *shown)
        engine.forget()
        assert answer(engine, *shown) == wanted
        assert len(encoded) == 4
        reader = engine.model.vision
        assert isinstance(reader, vision.Vision)
        for most in (reader._images._num_bytes // 2, 1):
            monkeypatch.setattr(kept_images, "KEPT_BYTES", most)
            engine.forget()
            assert answer(engine, *shown) == wanted
            assert reader._images._num_bytes <= most
        assert len(encoded) > 4


def test_a_stop_ends_an_answer_within_an_image(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its encoding is not finished first; the next answer is as it would be."""
    monkeypatch.setattr("specchat.llama.encoder_stop.NODES_AT_ONCE", 4)
    encode = vision.Vision._encoded
    shown = [image(seed, (64, 64)) for seed in range(2)]
    with loaded(files_of(shallow, projector, "llama")) as engine:
        results: list[Any] = []

        def stopped(self: vision.Vision, chunk: Any) -> Any:
            engine.stop()
            results.append(encode(self, chunk))
            return results[-1]

        with monkeypatch.context() as patch:
            patch.setattr(vision.Vision, "_encoded", stopped)
            chunks = list(engine.generate(text_about(*shown), images=shown, **SEEDED))
        assert [chunk.finish for chunk in chunks] == ["cancelled"]
        assert not results
        wanted = answer(engine, *shown)
        engine.forget()
        assert answer(engine, *shown) == wanted


@table("family", ["llama", "gemma3", "qwen2vl", "qwen3vl", "qwen35"])
def test_a_draft_model_reads_images_with_a_projector_of_its_own(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    family: str,
) -> None:
    """Then its drafts are as good as after a text; without one they are not."""
    shown = [image(seed, size_for(family)) for seed in range(3)]
    files: dict[str, Any] = files_of(shallow, projector, family)
    files["draft"] = files["target"]
    is_deep = family == "qwen3vl"
    own = projector(PAIRS[family], is_deep=is_deep, gain=1.0001)  # its cells have other ids
    drafting: dict[str, Any] = {"drafter": "model", "draft_length": 3}
    rates = list[float]()
    for path in (None, own):
        with loaded(files, draft_projector=path, exact="off") as engine:
            plain = answer(engine, *shown[:2], drafter="none")
            engine.forget()
            assert answer(engine, *shown[:2], **drafting) == plain
            rates.append(engine.stats.acceptance_rate)
            more = answer(engine, *shown[:2], more=" but the other", **drafting)
            other = answer(engine, shown[2], shown[0], **drafting)
            rates.append(engine.stats.acceptance_rate)
            engine.forget()
            assert answer(engine, *shown[:2], more=" but the other", drafter="none") == more
            assert answer(engine, shown[2], shown[0], drafter="none") == other
            assert answer(engine, *shown[:2], drafter="suffix", seed=2) == plain
    assert min(rates[2:]) > 0.95
    assert max(rates[:2]) < 0.8


@table("family", ["llama", "gemma3", "qwen2vl"])
def test_a_draft_model_of_another_vocabulary_drafts_after_images(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    tmp_path: Path,
    family: str,
) -> None:
    """The text is plain decoding's; drafts are better with a projector of its own than without."""
    shown = [image(seed, size_for(family)) for seed in range(3)]
    files: dict[str, Any] = files_of(shallow, projector, family)
    files["draft"] = tmp_path / "other.gguf"
    write_copy(files["target"], files["draft"], share=0.05)
    own = projector(PAIRS[family], gain=1.0001)  # its cells have other ids
    ways: list[dict[str, Any]] = [
        {"drafter": "model", "draft_length": 3},
        {"drafter": "auto"},
        {"drafter": "model", "draft_length": 3, "draft_tree": 14},
        {"drafter": "model", "draft_length": 3, "temperature": 0.9, "seed": 3},
    ]
    rates = list[float]()
    for path in (None, own):
        with loaded(files, draft_projector=path, exact="off") as engine:
            assert 0.9 < (engine.facts.common_tokens or 0.0) < 1.0
            for drafting in ways:
                for images, more in ((shown[:2], ""), (shown[:2], " but"), ([shown[2]], "")):
                    given = {"more": more, **drafting}
                    drafted = answer(engine, *images, **given)
                    if drafting is ways[0]:
                        rates.append(engine.stats.acceptance_rate)
                    engine.forget()
                    assert answer(engine, *images, **{**given, "drafter": "none"}) == drafted
    without, reading = rates[:3], rates[3:]
    assert sum(reading) > 1.2 * sum(without) > 0.0


def test_the_time_of_images_has_the_draft_models_own(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It encodes them again with its projector, where a second is counted for each time."""
    clock = count()
    monkeypatch.setattr("specchat.llama.image_reading.perf_counter", lambda: float(next(clock)))
    files: dict[str, Any] = files_of(shallow, projector, "llama")
    files["draft"] = files["target"]
    seconds = list[float]()
    for own in (None, projector("mlp", gain=1.0001)):
        with loaded(files, draft_projector=own, exact="off") as engine:
            for more in ("", " but"):
                answer(engine, image(1), more=more, drafter="model", draft_length=3)
                seconds.append(engine.stats.image_s)
    assert seconds == [1.0, 0.0, 2.0, 0.0]


def test_an_image_that_two_models_read_is_decoded_once(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not again for the next answers; pixels that had to go are, with the same text."""
    decoded: list[str] = []

    def decode(image: Image) -> Picture:
        decoded.append(image.name)
        return picture_of(image)

    monkeypatch.setattr(kept_images, "picture_of", decode)
    files: dict[str, Any] = files_of(shallow, projector, "llama")
    files["draft"] = files["target"]
    own = projector("mlp", gain=1.0001)
    shown = image(1)
    with loaded(files, draft_projector=own, exact="off") as engine:
        wanted = answer(engine, shown, drafter="model")
        assert answer(engine, shown, more=" but", drafter="model")
        assert decoded == ["1.png"]
        monkeypatch.setattr(kept_images, "KEPT_BYTES", 1)
        engine.forget()
        assert answer(engine, shown, drafter="model") == wanted
        assert len(decoded) > 1


def test_a_draft_models_projector_that_cannot_be_used_is_opened_once(
    shallow: WriteModel,
    projector: WriteProjector,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A notice says so with each answer about images, and no other; the text is the target's."""
    files: dict[str, Any] = files_of(shallow, projector, "llama")
    files["draft"] = files["target"]
    mtmd: Any = mtmd_library.load()
    opened: list[bytes] = []
    init, own = mtmd.mtmd_init_from_file, projector("mlp", gain=1.0001)

    def open_file(path: bytes, *rest: Any) -> Any:
        opened.append(path)
        return None if path == os.fsencode(own) else init(path, *rest)

    monkeypatch.setattr(mtmd, "mtmd_init_from_file", open_file)
    with loaded(files, draft_projector=own, exact="off") as engine:
        engine.image_tokens(image(9))  # for another client, which gets no answer
        assert list(engine.generate("once", max_tokens=4))
        assert not [each for each in engine.stats.notices if "images" in each]
        for seed in range(3):
            assert answer(engine, image(seed), image(seed + 3), drafter="model")
            notices = engine.stats.notices
            (notice,) = [each for each in notices if "the draft model reads no images" in each]
            assert "cannot be the projector" in notice
    assert opened.count(os.fsencode(own)) == 1

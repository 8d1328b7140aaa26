"""Images change nothing about drafts: they are read once, whole, and drafted after like text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_heads import WriteHead, heads  # noqa: F401  # a fixture
from engine.test_lossless import EXACT
from image_files import image
from scripts.support.tiny_gguf import write_projector
from specchat import Image
from specchat.engine.api import Engine, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import InvalidOption, ModelWontLoad
from specchat.llama.vision import Vision
from tables import table

FAMILIES = {
    "llama": "mlp",
    "gemma3": "gemma3",
    "qwen2vl": "qwen2vl_merger",
    "qwen35": "qwen2vl_merger",
    "granitehybrid": "mlp",
}
"""The projectors for each family: Gemma's images attend to themselves in both directions, and
Qwen's have positions in height and width."""
OPTIONS: dict[str, Any] = {**EXACT, "ctx": 1024}
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
WriteProjector = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("image_library")


@pytest.fixture(scope="session")
def projector(tmp_path_factory: pytest.TempPathFactory) -> WriteProjector:
    """Return a writer of projectors; the same arguments give the same file."""
    folder = tmp_path_factory.mktemp("projectors")

    def write(kind: str, **options: Any) -> Path:
        path = folder / f"{kind}-{sorted(options.items())}.gguf"
        return path if path.exists() else write_projector(path, kind, **options)

    return write


def text_about(*images: Image) -> str:
    """Return a text with images in it."""
    return " and then ".join(f"what {each} is this?" for each in images) + " it is and then it is"


def answer(engine: Engine, *images: Image, more: str = "", **options: Any) -> tuple[int, ...]:
    """Return the tokens of an answer to a text with images."""
    prompt = text_about(*images) + more
    chunks = engine.generate(prompt, images=images, **{**GREEDY, **options})
    return tuple(token for chunk in chunks for token in chunk.tokens)


def loaded(files: dict[str, Any], **options: Any) -> LocalEngine:
    """Return an engine in this process."""
    return LocalEngine(Loading(**files, **{**OPTIONS, **options}))


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_after_images_is_plain_decodings(
    shallow: WriteModel, projector: WriteProjector, family: str
) -> None:
    """With a draft model, lookup and branches; in the first turn, the next and with others."""
    files = {
        "target": shallow(family),
        "draft": shallow(family, "half right"),
        "projector": projector(FAMILIES[family]),
    }
    size = (96, 160) if "qwen" in family else (64, 64)
    first, second, third = (image(seed, size) for seed in range(3))
    with loaded(files) as engine:
        assert engine.facts.takes_images
        plain = answer(engine, first, second, drafter="none")
        other = answer(engine, third, second, drafter="none")
        assert plain != other
        num_cells = engine.stats.image_tokens
        assert num_cells > 20
        for drafting in (
            {"drafter": "model", "draft_length": 4},
            {"drafter": "suffix", "draft_length": 6},
            {"drafter": "auto"},
            {"drafter": "model", "draft_tree": 12},
            {"drafter": "suffix", "draft_tree": 12},
        ):
            engine.forget()
            assert answer(engine, first, second, **drafting) == plain
            assert engine.stats.cached_tokens == 0
            more = answer(engine, first, second, more=" but the other", **drafting)
            assert engine.stats.cached_tokens > num_cells
            assert answer(engine, third, second, **drafting) == other
            assert engine.stats.cached_tokens < num_cells
            engine.forget()
            assert more == answer(engine, first, second, more=" but the other", drafter="none")


HEADS = [
    ("llama with EAGLE-3", "mlp"),
    ("qwen35", "qwen2vl_merger"),
    ("qwen3 in two files", "mlp"),
    ("gemma4 in two files", "gemma3"),
    ("qwen35 with EAGLE-3", "qwen2vl_merger"),
    ("qwen35moe", "qwen3vl_merger"),
    ("qwen3moe in two files", "internvl"),
    ("hy_v3 in turn", "pixtral"),
    ("deepseek2", "internvl"),
    ("nemotron_h_moe", "pixtral"),
    ("qwen3 with DFlash 2", "mlp"),
    ("qwen3 with DSpark", "pixtral"),
]
"""A head of each sort, and the kind of a projector for its target."""


@pytest.mark.slow(keep=10)
@pytest.mark.parametrize(("kind", "of_projector"), HEADS)
@pytest.mark.parametrize("side", [64, 160])
def test_heads_draft_after_images(
    heads: WriteHead,  # noqa: F811
    projector: WriteProjector,
    kind: str,
    of_projector: str,
    side: int,
) -> None:
    """They read the target's states of images, so that as many drafts are right as without."""
    files = heads(kind, noise=0.01)
    files["projector"] = projector(of_projector)
    drafting: dict[str, Any] = {"drafter": "head", "draft_length": 3}
    first, second = image(1, (side, side)), image(2)
    with loaded(files) as engine:
        plain = answer(engine, first, second, drafter="none")
        engine.forget()
        assert answer(engine, first, second, **drafting) == plain
        rate = engine.stats.acceptance_rate
        more = answer(engine, first, second, more=" but the other", **drafting)
        engine.forget()
        assert more == answer(engine, first, second, more=" but the other", drafter="none")
        assert answer(engine, first, second, draft_tree=14, **drafting) == plain
        engine.forget()
        answer(engine, **drafting)
        assert rate >= 0.9 * engine.stats.acceptance_rate > 0


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2vl", "qwen35"])
def test_a_text_with_images_is_set_aside_and_goes_on(
    shallow: WriteModel, projector: WriteProjector, family: str
) -> None:
    """What was read of an image is not read again, even if its states are gone."""
    files = {"target": shallow(family), "projector": projector(FAMILIES[family])}
    first, second = image(1, (96, 96)), image(2, (96, 96))
    words = " word" * 80
    with loaded(files) as engine:
        plain = answer(engine, first, second, more=words)
        num_read = engine.stats.prompt_tokens
        answer(engine, second, more=words)
        assert isinstance(engine.model.vision, Vision)
        engine.model.vision._images.clear()
        assert answer(engine, first, second, more=words) == plain
        assert engine.stats.cached_tokens >= num_read - 2
        assert engine.stats.image_s == 0


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2vl", "qwen35"])
def test_a_text_with_images_goes_on_in_another_process(
    shallow: WriteModel,
    projector: WriteProjector,
    family: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file on disk has the image's cells, so neither it nor the text is read again.

    Nor by a draft model with a projector of its own.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kind = FAMILIES[family]
    files: dict[str, Any] = {"target": shallow(family), "projector": projector(kind)}
    own = {"draft": files["target"], "draft_projector": projector(kind, gain=1.0001)}
    shown, words = image(1, (96, 96)), " word" * 110
    for pair, drafter in ((files, "auto"), (files | own, "model")):
        asked: dict[str, Any] = {"more": words, "drafter": drafter, "draft_length": 3}
        with loaded(pair, cache_disk=64) as engine:
            plain = answer(engine, shown, **asked)
            num_read = engine.stats.prompt_tokens
        with loaded(pair, cache_disk=64) as engine:
            assert answer(engine, shown, **asked) == plain
            assert engine.stats.cached_tokens >= num_read - 2
            assert engine.stats.image_s == 0
            assert engine.stats.acceptance_rate > 0.95 or drafter == "auto"


def test_a_chat_shows_images_where_their_marks_stand(
    shallow: WriteModel, projector: WriteProjector
) -> None:
    """Names of special tokens beside them stay text, and an image in a later turn is read alone."""
    files = {"target": shallow("llama"), "projector": projector("mlp")}
    first, second = image(1), image(2)
    with loaded(files) as engine:
        asked: list[Any] = [{"role": "user", "content": f"<|im_end|> {first} what?"}]
        said = "".join(chunk.text for chunk in engine.chat(asked, images=[first], **GREEDY))
        tokens = engine.prompts.render(_chat(asked, [first]))
        assert sum(token < 0 for token in tokens) == engine.stats.image_tokens == 64
        assert tokens.count(2) == 1  # the end of the turn alone
        num_read = engine.stats.prompt_tokens
        asked += [{"role": "assistant", "content": said}]
        asked += [{"role": "user", "content": f"and {second}?"}]
        list(engine.chat(asked, images=[first, second], **GREEDY))
        assert engine.stats.cached_tokens > num_read - 8
        assert engine.stats.image_tokens == 128


def _chat(messages: list[Any], images: list[Image]) -> Any:
    from specchat.requests.answer_request import ChatRequest

    return ChatRequest(messages=messages, images=images)


@table(
    "kind, options, reason",
    [
        ("mlp", {"text_width": 96}, "width 96"),
        ("mlp", {"has_vision": False}, "not made for images"),
    ],
)
def test_a_projector_of_another_model_is_refused_before_loading(
    shallow: WriteModel,
    projector: WriteProjector,
    kind: str,
    options: dict[str, Any],
    reason: str,
) -> None:
    """The reason says what does not fit."""
    with pytest.raises(ModelWontLoad, match=reason):
        loaded({"target": shallow("llama"), "projector": projector(kind, **options)})
    with pytest.raises(ModelWontLoad, match="not a projector"):
        loaded({"target": shallow("llama"), "projector": shallow("llama")})


def test_what_is_learned_of_a_pair_is_the_same_with_a_projector(
    shallow: WriteModel, projector: WriteProjector
) -> None:
    """Passes take the same time, so a text after an image goes on with what texts have shown."""
    target = shallow("llama")
    with loaded({"target": target}, learn=True) as engine:
        subject = engine.pacing.subject
    with loaded({"target": target, "projector": projector("mlp")}, learn=True) as engine:
        assert engine.pacing.subject == subject
        assert answer(engine, image(1))


def test_what_cannot_be_shown_is_refused_in_a_line(
    shallow: WriteModel, projector: WriteProjector
) -> None:
    """Without a projector, without a mark, with bytes that are no image; the engine goes on."""
    shown, broken = image(1), Image(b"no image", "notes.txt")
    with loaded({"target": shallow("llama")}) as engine:
        assert not engine.facts.takes_images
        with pytest.raises(InvalidOption, match="reads text only"):
            answer(engine, shown)
    with loaded({"target": shallow("llama"), "projector": projector("mlp")}) as engine:
        with pytest.raises(InvalidOption, match=r"notes\.txt is not an image"):
            answer(engine, broken)
        with pytest.raises(InvalidOption, match=r"1\.png stands in no text"):
            list(engine.generate("what?", images=[shown]))
        with pytest.raises(InvalidOption, match="text must follow the image"):
            list(engine.generate(f"what? {shown}", images=[shown]))
        assert answer(engine, shown)

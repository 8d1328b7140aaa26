"""Images with a shared engine: its process tells their tokens while it answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT
from image_files import image
from scripts.support.tiny_gguf import write_projector
from specchat import Image
from specchat.chat.store import Store
from specchat.engine.api import Engine, EngineFacts, Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import ContextFull, EngineFailed, InvalidOption, StoreFailed
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import DistantImage
from specchat.llama import mtmd_library
from specchat.requests.answer_request import AnswerRequest, ChatRequest, GenerateRequest
from specchat.sharing.process_engine import ProcessEngine
from specchat.sharing.prompt_process import PromptProcess
from specchat.sharing.shared_engine import SharedEngine
from specchat.sharing.tickets import Ticket

pytestmark = pytest.mark.usefixtures("image_library")
PROJECTORS = {"llama": "mlp", "gemma3": "gemma3", "qwen2vl": "qwen2vl_merger"}
SEEDED: dict[str, Any] = {"temperature": 0.9, "seed": 5, "max_tokens": 40, "ignore_end": True}


def loading_of(write: WriteModel, family: str, folder: Path) -> Loading:
    """Return how to load a tiny model that takes images."""
    projector = write_projector(folder / "mmproj.gguf", PROJECTORS[family])
    return Loading(write(family), projector=projector, **{**EXACT, "ctx": 1024, "threads": 1})


class Asked:
    """An answer that is waited for."""

    def __init__(self, engine: SharedEngine, request: AnswerRequest) -> None:
        """Ask for it."""
        self._changed = threading.Event()
        self.ticket = Ticket(request, "a client", self._changed.set)
        engine.submit(self.ticket)
        self.update = self.ticket.take()
        self.tokens: list[int] = []

    def step(self) -> None:
        """Wait for news."""
        assert self._changed.wait(60)
        self._changed.clear()
        self.update = self.ticket.take()
        self.tokens += [token for chunk in self.update.chunks for token in chunk.tokens]

    def end(self) -> list[int]:
        """Wait for the end; return the tokens."""
        while not self.update.is_over:
            self.step()
        assert self.update.error is None
        return self.tokens


@pytest.fixture(scope="module")
def process(
    tiny: WriteModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SharedEngine, Loading]]:
    """Share an engine in a process of its own."""
    folder = tmp_path_factory.mktemp("projector")
    loading = loading_of(tiny, "llama", folder)
    engine = SharedEngine(lambda report: ProcessEngine(loading, report))
    try:
        engine.wait_until_loaded()
        yield engine, loading
    finally:
        engine.close()


def chat(*images: Image) -> ChatRequest:
    """Return a question about images."""
    content = "".join(map(str, images)) + "What is this?"
    return ChatRequest([{"role": "user", "content": content}], images=images, **SEEDED)


@pytest.mark.parametrize("family", PROJECTORS)
def test_answers_about_images_that_take_turns_are_those_they_would_be_alone(
    shallow: WriteModel, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each goes on with the image it was asked about, which is read once."""
    loading = loading_of(shallow, family, tmp_path)
    images = [image(number, (96, 96)) for number in range(3)]
    texts = [f"{number} is {each} of" for number, each in enumerate(images)]
    requests = [
        GenerateRequest(text, images=[each], **SEEDED)
        for text, each in zip(texts, images, strict=True)
    ]
    engine = SharedEngine(lambda _: LocalEngine(loading))
    try:
        engine.wait_until_loaded()
        alone = [Asked(engine, each).end() for each in requests]
        engine.call(lambda owned: owned.forget())
        monkeypatch.setattr("specchat.sharing.answer_turn.SLICE_SECONDS", 0.0)
        together = [Asked(engine, each) for each in requests]
        assert [each.end() for each in together] == alone
        assert [each.update.statistics.cached_tokens for each in together] == [0, 0, 0]
    finally:
        engine.close()
    assert len({tuple(each) for each in alone}) == 3


def test_tokens_of_images_are_told_during_an_answer(
    process: tuple[SharedEngine, Loading],
) -> None:
    """As many as in a prompt, and the answer goes on meanwhile."""
    engine, _ = process
    shown = image(7, (96, 160))
    running = Asked(engine, GenerateRequest("once", ignore_end=True, max_tokens=900))
    running.step()
    tokens = engine.image_tokens(shown)
    assert not running.ticket.is_over
    running.ticket.cancel()
    running.end()
    assert min(tokens) < 0
    asked = Asked(engine, chat(shown))
    asked.end()
    assert asked.update.statistics.image_tokens == sum(token < 0 for token in tokens)


def test_the_bytes_of_an_image_go_to_the_process_once(
    process: tuple[SharedEngine, Loading],
) -> None:
    """Not with each question for its tokens, size or answer, nor with the next turn."""
    engine, _ = process
    file, names = image(41), list[str]()

    def shown(name: str) -> Image:
        def read(digest: bytes) -> bytes:
            assert digest == file.digest
            names.append(name)
            return file.data

        return DistantImage(read, name, file.digest, file.num_bytes)

    def said(*images: Image) -> list[ChatMessage]:
        return [{"role": "user", "content": f"{each}What is this?"} for each in images]

    engine.image_tokens(shown("checked"))
    first, second = shown("asked"), shown("asked again")
    requests = [
        ChatRequest(said(*each), images=each, **SEEDED) for each in ([first], [first, second])
    ]
    for request in requests:
        assert engine.call(methodcaller("size", request))
        assert Asked(engine, request).end()
    assert names == ["checked"]


def test_errors_of_images_come_from_the_process(process: tuple[SharedEngine, Loading]) -> None:
    """Each says what is wrong, and the next image is looked at as usual."""
    engine, _ = process
    with pytest.raises(InvalidOption, match="the image is not an image specchat reads"):
        engine.image_tokens(Image(b"no picture"))
    assert engine.image_tokens(image(1))


def test_the_prompt_process_counts_images_without_their_projector(
    process: tuple[SharedEngine, Loading],
) -> None:
    """Its prompt is as long as the engine's, and images that are too many are refused before."""
    engine, loading = process
    images = [image(number) for number in range(2)]
    table = {each.mark: engine.image_tokens(each) for each in images}
    prompts = PromptProcess(loading.target, engine.facts.context)
    try:
        rendered = prompts.render(chat(*images), table)
        asked = Asked(engine, chat(*images))
        asked.end()
        assert asked.update.statistics.prompt_tokens == len(rendered)
        assert prompts.check(chat(*images), table) == len(rendered)
        many = [image(number) for number in range(20)]
        with pytest.raises(ContextFull):
            prompts.check(chat(*many), {each.mark: table[images[0].mark] for each in many})
        with pytest.raises(InvalidOption, match="reads text only"):
            prompts.check(chat(*images))
    finally:
        prompts.close()


def test_an_engine_without_a_projector_says_so(shallow: WriteModel) -> None:
    """In its facts, and in the error for an image."""
    with LocalEngine(Loading(shallow("llama"), threads=1)) as engine:
        facts: EngineFacts = engine.facts
        assert not facts.takes_images
        with pytest.raises(InvalidOption, match="--projector"):
            engine.image_tokens(image(1))


@pytest.mark.parametrize("is_clone", [False, True])
def test_an_image_without_its_library_fails_alone(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_clone: bool
) -> None:
    """The chat's engine, which is not loaded again, answers the next text."""
    monkeypatch.setenv(mtmd_library.VARIABLE, str(tmp_path / "none"))
    monkeypatch.setattr(mtmd_library, "is_clone", lambda: is_clone)
    monkeypatch.setattr(mtmd_library, "import_module", missing)
    mtmd_library.load.cache_clear()
    loading = loading_of(tiny, "llama", tmp_path)
    engine = SharedEngine(lambda _: LocalEngine(loading), reloads=False)
    try:
        engine.wait_until_loaded()
        shown = image(1)
        asked = Asked(engine, GenerateRequest(f"{shown} is", images=[shown], **SEEDED))
        while not asked.update.is_over:
            asked.step()
        assert isinstance(asked.update.error, InvalidOption)
        advice = ".venv/setup/setup.log says why" if is_clone else "reinstall llama-cpp-python"
        assert advice in str(asked.update.error)
        assert Asked(engine, GenerateRequest("once", **SEEDED)).end()
    finally:
        engine.close()
        mtmd_library.load.cache_clear()


@pytest.mark.parametrize("lacks", ["the library", "Pillow"])
def test_an_engine_knows_what_it_lacks_for_images(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """From the start, unless a clone sets it up; then nobody promises images."""
    if lacks == "Pillow":
        monkeypatch.setattr("specchat.images.picture.find_spec", lambda _: None)
    else:
        monkeypatch.setenv(mtmd_library.VARIABLE, str(tmp_path / "none"))
    loading, facts = loading_of(tiny, "llama", tmp_path), list[EngineFacts]()
    for is_clone in (True, False):
        monkeypatch.setattr(mtmd_library, "is_clone", lambda found=is_clone: found)
        mtmd_library.why_not.cache_clear()
        with LocalEngine(loading) as engine:
            facts.append(engine.facts)
    mtmd_library.why_not.cache_clear()
    assert [each.takes_images for each in facts] == [True, False]
    advice = "pip install pillow" if lacks == "Pillow" else "reinstall llama-cpp-python"
    assert facts[0].images_off_reason == ""
    assert advice in facts[1].images_off_reason


def missing(name: str) -> None:
    """Fail as the import of llama-cpp-python's module does without the library."""
    raise RuntimeError(f"no library for {name}")


@pytest.mark.parametrize("call", ["mtmd_tokenize", "mtmd_encode_chunk"])
def test_an_image_that_its_projector_refuses_fails_alone(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whether its tokens cannot be made, or its states."""
    monkeypatch.setattr(mtmd_library.load(), call, lambda *_: 1)
    loading = loading_of(tiny, "llama", tmp_path)
    engine = SharedEngine(lambda _: LocalEngine(loading), reloads=False)
    try:
        engine.wait_until_loaded()
        shown = image(1)
        asked = Asked(engine, GenerateRequest(f"{shown} is", images=[shown], **SEEDED))
        while not asked.update.is_over:
            asked.step()
        assert "the projector" in str(asked.update.error)
        assert Asked(engine, GenerateRequest("once", **SEEDED)).end()
    finally:
        engine.close()


def test_an_image_that_is_gone_from_the_history_fails_alone(
    process: tuple[SharedEngine, Loading], tmp_path: Path
) -> None:
    """The engine's process has what it made of those that it read, and answers the next text."""
    engine, _ = process
    with Store(tmp_path / "data" / "history.db") as store:
        number = store.begin().id
        asked = store.add(number, "user", "What are they?", images=[image(31), image(32)])
        known, shown = store.tree(number)[asked.id].images
        request = GenerateRequest(f"{known} is", images=[known], **SEEDED)
        assert Asked(engine, request).end()
        store.delete(number)
        store.purge(0.0)
    assert Asked(engine, request).end()
    with pytest.raises(StoreFailed, match=r"32\.png is no longer in the history"):
        engine.image_tokens(shown)
    failing = Asked(engine, GenerateRequest(f"{shown} is", images=[shown], **SEEDED))
    while not failing.update.is_over:
        failing.step()
    assert isinstance(failing.update.error, StoreFailed)
    assert Asked(engine, GenerateRequest("once", **SEEDED)).end()


def test_an_engine_that_ended_says_so(process: tuple[SharedEngine, Loading]) -> None:
    """A client that waits for the tokens of an image is not left waiting."""
    _, loading = process
    engine: Engine = ProcessEngine(loading)
    engine.kill()
    with pytest.raises(EngineFailed):
        engine.image_tokens(image(1))
    engine.close()

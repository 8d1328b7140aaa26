"""Finding pairs in F8 and by /models, opening a GGUF file, and answers of another chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from hub_server import HubServer
from local_folders import GGUF, put, put_in_hub
from scripted_chat import Script, chat
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.pairs import find_pair
from specchat.catalogue.tuned_settings import Tuned, keep_tuned
from specchat.chat.store import Store
from specchat.cli.offers import open_file
from specchat.engine.api import Loading
from specchat.errors import ModelNotFound
from specchat.hub.cache import cache_root
from specchat.hub.references import Reference
from specchat.tui.app import ChatApp
from specchat.tui.screens.file_screen import FileScreen
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer, PairChoice
from tui.driving import say, screen_text, type_keys, until
from tui.test_models import words

pytestmark = pytest.mark.anyio
SIZE = (110, 36)


def installed(name: str) -> Offer:
    """Return an installed pair."""
    choice = PairChoice(name, "", Loading(Path(f"{name}.gguf")))
    return Offer(name, "a pair", choose=lambda: choice)


def offers() -> list[Offer]:
    """Return two installed pairs, and one to download."""
    return [installed("alpha"), installed("beta"), Offer("gamma", "far away", "1 GB")]


def listed(app: ChatApp) -> list[str | None]:
    """Return the pairs in the list, and the line that opens a file."""
    return [each.id for each in app.screen.query_one(OptionList).options if not each.disabled]


async def test_pairs_are_searched_by_name_and_description() -> None:
    """What is typed narrows the list, letters that were commands too; Enter uses what it found."""
    app = chat(Script(), offers=offers)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen) and len(listed(app)) == 5)
        await type_keys(pilot, *"far")
        await until(pilot, lambda: listed(app) == ["gamma", "open a file"])
        await type_keys(pilot, *["backspace"] * 3)
        await until(pilot, lambda: app.screen.query_one(Input).value == "")
        await type_keys(pilot, *"cdq/")
        await until(pilot, lambda: app.screen.query_one(Input).value == "cdq/")
        await until(pilot, lambda: listed(app) == ["open a file"])
        await type_keys(pilot, *["backspace"] * 4)
        await until(pilot, lambda: app.screen.query_one(Input).value == "")
        await type_keys(pilot, *"beta", "enter")
        await until(pilot, lambda: app.pair_controller.pair.name == "beta")


@pytest.mark.slow
async def test_a_pair_is_used_by_its_name() -> None:
    """What is not installed is listed, to be downloaded."""
    app = chat(Script(), offers=offers)
    async with app.run_test(size=SIZE) as pilot:
        await say(pilot, "/models alpha", wait=False)
        await until(pilot, lambda: app.pair_controller.pair.name == "alpha")
        await say(pilot, "/models gamma", wait=False)
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))
        await until(pilot, lambda: listed(app) == ["gamma", "open a file"])
        assert app.screen.query_one(Input).value == "gamma"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("keys", [(), ("ctrl+o",), ("up", "enter"), (*"none", "enter")], ids=str)
async def test_a_gguf_file_is_opened(
    keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By /models, by a key, or from the last line of the list, which every search keeps."""
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "mine.gguf").touch()
    monkeypatch.chdir(tmp_path)
    named: list[str] = []

    def find(name: str) -> Offer:
        named.append(name)
        return installed("mine")

    app = chat(Script(), offers=offers, open_file=find)
    async with app.run_test(size=SIZE) as pilot:
        if not keys:
            await say(pilot, "/models some/mine.gguf", wait=False)
        else:
            await pilot.press("f8")
            await until(pilot, lambda: isinstance(app.screen, ModelScreen) and bool(listed(app)))
            await pilot.press(*keys)
            await until(pilot, lambda: isinstance(app.screen, FileScreen))
            await type_keys(pilot, *"some/mine.gguf", "enter")
        await until(pilot, lambda: app.pair_controller.pair.name == "mine")
        assert named == ["some/mine.gguf"]
        assert app.view.model_screen is None


@pytest.mark.slow
@pytest.mark.parametrize("by_key", [False, True])
async def test_a_name_on_the_hub_is_offered_for_download(by_key: bool) -> None:
    """By /models, or typed where a file's path is."""
    file = Reference("org/some", "some-Q8_0.gguf")
    app = chat(Script(), offers=offers, open_file=lambda name: Offer(name, "", references=(file,)))
    async with app.run_test(size=SIZE) as pilot:
        if by_key:
            await pilot.press("f8")
            await until(pilot, lambda: isinstance(app.screen, ModelScreen) and bool(listed(app)))
            await pilot.press("ctrl+o")
            await until(pilot, lambda: isinstance(app.screen, FileScreen))
            await type_keys(pilot, *"org/some:Q8_0")
            await until(pilot, lambda: "Enter looks for it on the hub" in screen_text(app))
            await pilot.press("enter")
        else:
            await say(pilot, "/models org/some:Q8_0", wait=False)
        await until(pilot, lambda: "Download org/some:Q8_0?" in screen_text(app))
        assert str(file) in screen_text(app)


def test_a_quantization_on_the_hub_is_an_offer(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the file that it names; offline it is not looked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for quantisation in ("Q4_K_M", "Q8_0"):
        hub.put("org/some", f"some-{quantisation}.gguf", bytes(5000))
    offer = open_file(words(), "org/some:q8_0")
    assert offer.references == (Reference("org/some", "some-Q8_0.gguf"),)
    assert (offer.name, offer.size) == ("org/some/some-Q8_0.gguf", "5.00 kB")
    assert offer.choose is None
    (best,) = open_file(words(), "https://hf.co/org/some").references
    assert best.file == "some-Q4_K_M.gguf"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelNotFound, match=r"`specchat pull org/some:q8_0` fetches it"):
        open_file(words(), "org/some:q8_0")


def test_what_is_ambiguous_here_is_not_asked_of_the_hub(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder with several models, or a repository of which several are here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("a", "b"):
        put(tmp_path / "private/models" / f"{name}.gguf")
        put_in_hub(cache_root(), "org/some", f"some-Q{len(name)}_{name}.gguf", GGUF + name.encode())
    with pytest.raises(ModelNotFound, match="is a folder with 2 models"):
        open_file(words(), "private/models")
    with pytest.raises(ModelNotFound, match="is ambiguous"):
        open_file(words(), "org/some")
    assert hub.seen == []


@pytest.mark.slow
async def test_a_file_that_does_not_exist_is_a_notice() -> None:
    """The pair stays."""
    app = chat(Script(), offers=offers)
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await say(pilot, "/models none.gguf", wait=False)
        await until(pilot, lambda: "none.gguf cannot be opened here" in screen_text(app))
        assert app.pair_controller.pair.name == "scripted"


def test_a_file_offers_its_model(tmp_path: Path) -> None:
    """It is named after the file; a path that leads nowhere is an error."""
    target = find_pair(DEMO).target
    offer = open_file(words(), str(target))
    assert offer.choose is not None
    assert offer.choose().loading.target == target
    assert offer.name == target.stem
    with pytest.raises(ModelNotFound):
        open_file(words(), str(tmp_path / "none.gguf"))


def test_a_tuned_file_keeps_what_was_chosen_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other draft model is loaded, or named."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    target = find_pair(DEMO).target
    choose = open_file(words(), str(target)).choose
    assert choose is not None
    assert "draft: " in choose().description
    keep_tuned(target, Tuned("suffix", None, 1.5))
    tuned = choose()
    assert tuned.loading.draft is None
    assert tuned.description == ""


@pytest.mark.slow
async def test_an_answer_of_another_chat_is_not_called_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as that chat writes; afterwards the answer can be continued here."""
    monkeypatch.setattr("specchat.tui.texts.line_below.WRITTEN_SECONDS", 1e9)
    script = Script([" three"])
    with Store(tmp_path / "history.db") as other:
        number = other.begin().id
        question = other.add(number, "user", "Count")
        answer = other.add(number, "assistant", "", question.id)
        other.write(answer.id, "one two")
    app = chat(script, tmp_path / "history.db")
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await app.actions.conversations.open(number)
        await until(pilot, lambda: "another chat is writing this answer" in screen_text(app))
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "Another chat is still writing" in screen_text(app))
        assert script.asked == []
        monkeypatch.setattr("specchat.tui.texts.line_below.WRITTEN_SECONDS", 0.0)
        await app.view.show_branch()
        await until(pilot, lambda: "interrupted · Ctrl+G continues" in screen_text(app))
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "one two three" in screen_text(app))

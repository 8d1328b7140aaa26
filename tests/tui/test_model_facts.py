"""What F8 says of each pair before it is loaded, and opening files."""

from __future__ import annotations

import argparse
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Footer, Input, OptionList, Static
from textual.widgets._footer import FooterKey

from scripted_chat import Script, chat
from specchat.catalogue.catalogue_file import DEMO
from specchat.catalogue.local_models import model_at
from specchat.catalogue.outlook import Outlook
from specchat.catalogue.pairs import find_pair, require_savable
from specchat.catalogue.recent_pairs import RecentPair, recent_pairs, remember_pair
from specchat.chat.store import Store
from specchat.cli.arguments import parse
from specchat.cli.chat import _first_choice
from specchat.cli.offers import _reopened, find_offers, foresee_offer
from specchat.cli.option_arguments import complete
from specchat.cli.pair_choices import choice_of_recent
from specchat.engine.api import Loading
from specchat.errors import ModelNotFound, SettingsError
from specchat.gguf.split_files import size_with_parts
from specchat.planning.device import Device, Machine
from specchat.tui.app import ChatApp
from specchat.tui.controllers.pulls import PullState
from specchat.tui.screens.file_screen import FileScreen, _parent, completed, entries_of
from specchat.tui.screens.model_rows import Columns, ModelRow
from specchat.tui.screens.model_screen import ModelScreen, question_before_pull
from specchat.tui.setup import Offer, PairChoice
from tables import table
from tui.driving import screen_text, type_keys, until

pytestmark = pytest.mark.anyio
SIZES = [(60, 20), (200, 55)]
FITTING = Outlook("big-Q4.gguf", "tiny", "Q4_K_M", 8192, "7.1 of 22.4 GB memory")
LARGE = Outlook("huge-Q8.gguf", "its own prediction head", "Q8_0", 4096, "5.1 of 4.2 GB memory",
                fits=False)  # fmt: skip


def here(name: str, loaded: float = 0.0, outlook: Outlook = FITTING, title: str = "") -> Offer:
    """Return an installed pair."""
    choice = PairChoice(name, "", Loading(Path(f"{name}.gguf")))
    return Offer(name, "a pair", "5.67 GB", loaded=loaded, title=title, outlook=outlook,
                 choose=lambda: choice)  # fmt: skip


def words(*given: str) -> argparse.Namespace:
    """Return what the command line says."""
    arguments = parse(["chat", *given])
    complete(arguments)
    return arguments


async def open_models(pilot: Any, app: ChatApp) -> None:
    """Open the models screen and wait until nothing more is found out."""
    await pilot.press("f8")
    await until(pilot, lambda: isinstance(app.screen, ModelScreen) and len(listed(app)) > 1)
    screen = app.screen
    assert isinstance(screen, ModelScreen)
    await until(pilot, lambda: all(each.is_read for each in screen._listed))
    await pilot.pause()


def listed(app: ChatApp) -> list[str | None]:
    """Return what is listed, in order."""
    return [each.id for each in app.screen.query_one(OptionList).options if not each.disabled]


async def mark(pilot: Any, name: str) -> str:
    """Highlight a pair, and return what the screen shows of it."""
    screen = pilot.app.screen
    options = screen.query_one(OptionList)
    options.highlighted = options.get_option_index(name)
    row = screen._listed.get(name)
    details = screen._listed.with_siblings(row).details() if row else ""
    await until(pilot, lambda: screen.query_one(".facts", Static).content == details)
    await pilot.pause(0.1)
    return " ".join(screen_text(pilot.app).replace("│", " ").split())


async def test_pairs_are_listed_by_use() -> None:
    """The one in use, those used before with the latest first, others here, then the rest."""
    offers = [here("never"), here("old", 10.0), here("new", 20.0), Offer("away", "far", "1 GB")]
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=(120, 36)) as pilot:
        await open_models(pilot, app)
        assert listed(app) == ["scripted", "new", "old", "never", "away", "open a file"]


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_all_facts_are_on_every_screen(size: tuple[int, int]) -> None:
    """Target, draft, quantization, size, memory and context of the highlighted pair."""
    app = chat(Script(), offers=lambda: [here("big"), here("huge", outlook=LARGE)])
    async with app.run_test(size=size) as pilot:
        await open_models(pilot, app)
        shown = await mark(pilot, "big")
        assert "big · Q4_K_M · 5.67 GB" in shown
        assert "Needs 7.1 of 22.4 GB memory for a context of 8192 tokens" in shown
        assert "Drafts come from tiny" in shown
        shown = await mark(pilot, "huge")
        assert shown.count("too large") >= 1
        assert "Too large: needs 5.1 of 4.2 GB memory for a context of 4096 tokens" in shown
        assert "Drafts come from its own prediction head" in shown


def test_a_download_that_is_too_large_says_so_first() -> None:
    """The question repeats what the list says of the memory; it is silent where there is enough."""
    needs = "needs 5.1 of 4.2 GB memory"
    assert needs in question_before_pull(Offer("big", "far", "9 GB", outlook=LARGE))._details
    assert "memory" not in question_before_pull(Offer("small", "far", "1 GB"))._details


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_no_key_is_cut(size: tuple[int, int]) -> None:
    """The keys that apply to the highlighted pair are all there, in full, and no others."""
    offers = [here("big"), Offer("away", "far", "1 GB"), Offer("coming", "near", "1 GB")]
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=size) as pilot:
        app.pulls.latest["coming"] = PullState(share=0.34, words="1 of 3 GB")

        def keys() -> list[FooterKey]:
            return [each for each in app.screen.query_one(Footer).query(FooterKey) if each.display]

        def names() -> list[str]:
            return [each.description for each in keys()]

        await open_models(pilot, app)
        for name, expected in {
            "big": ["Use", "Make default", "Open file", "Close"],
            "away": ["Download", "Open file", "Close"],
            "coming": ["Cancel download", "Open file", "Close"],
            "open a file": ["Open file", "Close"],
        }.items():
            await mark(pilot, name)
            await until(pilot, lambda wanted=expected: names() == wanted)  # type: ignore[misc]
            await pilot.pause()
            footer = app.screen.query_one(Footer)
            assert all(footer.region.contains_region(each.region) for each in keys())
            (line,) = [line for line in screen_text(app).splitlines() if " Close" in line]
            assert all(each in line for each in expected)


@table("width", [56, 76, 94, 105, 135])
def test_no_name_of_the_catalogue_is_cut(width: int) -> None:
    """Nor does a row exceed the list; the drafts have a column once there is room."""
    rows = [ModelRow(each, each.outlook) for each in find_offers(words())]
    columns = Columns.fitting(rows, width)
    assert columns.name >= max(len(row.title) for row in rows)
    assert (columns.drafts > 0) == (width >= 105)
    for row in rows:
        full = replace(row, outlook=replace(row.outlook, memory="≈ 12.2 of 22.4 GB memory"))
        assert columns.row(full).cell_length <= width
        shown = columns.row(full).plain
        assert ("≈ 12.2 GB" in shown) == (width == 76)
        assert ("≈ 12.2 of 22.4 GB" in shown) == (width > 76)
    assert columns.heading().cell_length <= width


@pytest.mark.slow
async def test_the_speed_measured_here_is_named(tmp_path: Path) -> None:
    """That of the latest stored answers; a few tokens, or a moment, say nothing of a pair.

    Where it is known, nothing is predicted.
    """
    with Store(tmp_path / "history.db") as store:
        for pair, tokens, seconds in (("big", 384, 4.0), ("brief", 96, 0.1), ("few", 26, 1.5)):
            number = store.begin(pair=pair).id
            question = store.add(number, "user", "Count")
            answer = store.add(number, "assistant", "", question.id)
            store.write(
                answer.id, "one", finish="stop",
                statistics={"pair": pair, "generated_tokens": tokens, "decode_s": seconds,
                            "speedup": 1.7},
            )  # fmt: skip
    predicted = replace(FITTING, rate=61.2, speed="predicted 61.2 tokens/s")
    offers = [here(name, outlook=predicted) for name in ("big", "brief", "few", "other")]
    app = chat(Script(), tmp_path / "history.db", offers=lambda: offers)
    async with app.run_test(size=(120, 36)) as pilot:
        await open_models(pilot, app)
        assert screen_text(app).count("  96, 1.7x faster") == 1
        shown = await mark(pilot, "big")
        assert "Measured here: 96.0 tokens/s, 1.7x faster with drafts" in shown
        assert "redicted" not in shown
        for name in ("brief", "few", "other"):
            shown = await mark(pilot, name)
            assert "Measured here" not in shown
            assert "Predicted 61.2 tokens/s" in shown
        assert screen_text(app).count("  ≈61 ") == 3


@pytest.mark.slow
async def test_quantizations_of_a_model_stand_together() -> None:
    """Each names the others; a search for one finds it."""
    other = replace(FITTING, quantisation="Q8_0")
    offers = [here("a/m-Q4", title="m"), here("between"), here("b/m-Q8", outlook=other, title="m")]
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=(120, 36)) as pilot:
        await open_models(pilot, app)
        assert listed(app)[1:4] == ["a/m-Q4", "b/m-Q8", "between"]
        assert "Also here as Q8_0 (5.67 GB)" in await mark(pilot, "a/m-Q4")
        assert "Also here as Q4_K_M (5.67 GB)" in await mark(pilot, "b/m-Q8")
        await type_keys(pilot, *"q8_0")
        await until(pilot, lambda: listed(app) == ["b/m-Q8", "open a file"])


@pytest.mark.slow
async def test_a_pair_that_cannot_be_read_hides_nothing_of_the_next() -> None:
    """Its row says why."""

    def foresee(offer: Offer, held: int) -> Outlook:
        if offer.name == "one":
            raise SettingsError("the tuned settings are damaged")
        return replace(offer.outlook, memory="7.1 of 22.4 GB memory")

    offers = [here("one", outlook=Outlook()), here("two", outlook=Outlook())]
    app = chat(Script(), offers=lambda: offers, foresee=foresee)
    async with app.run_test(size=(120, 36)) as pilot:
        await open_models(pilot, app)
        assert "the tuned settings are damaged" in await mark(pilot, "one")
        assert "Needs 7.1 of 22.4 GB memory" in await mark(pilot, "two")


@pytest.mark.slow
async def test_the_list_is_there_before_the_files_are_read() -> None:
    """Rows are completed one by one; keys work meanwhile."""
    gate = threading.Event()

    def foresee(offer: Offer, held: int) -> Outlook:
        del held
        gate.wait(60)
        return replace(offer.outlook, memory="7.1 of 22.4 GB memory")

    offers = [here("one", outlook=Outlook()), here("two", outlook=Outlook())]
    app = chat(Script(), offers=lambda: offers, foresee=foresee)
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen) and len(listed(app)) == 4)
        assert "Reading the file…" in await mark(pilot, "one")
        await type_keys(pilot, *"tw")
        await until(pilot, lambda: listed(app) == ["two", "open a file"])
        gate.set()
        await until(pilot, lambda: "Needs 7.1 of 22.4 GB memory" in screen_text(app))


@pytest.mark.usefixtures("own_state")
def test_a_pair_that_was_opened_is_offered_again(tmp_path: Path) -> None:
    """A file of any folder too, with the draft model it had; not once it is gone."""
    demo, gone = find_pair(DEMO), tmp_path / "gone.gguf"
    remember_pair("mine", demo.target, demo.draft)
    remember_pair("gone", gone, None)
    offers = {each.name: each for each in find_offers(words())}
    assert "gone" not in offers
    assert offers["mine"].loaded > 0
    assert offers["mine"].choose is not None
    assert offers["mine"].choose().loading.draft == demo.draft


@pytest.mark.usefixtures("own_state")
def test_the_chat_begins_with_what_was_used_last(tmp_path: Path) -> None:
    """Unless it is gone, or something else is named."""
    demo = find_pair(DEMO)
    assert _first_choice(words()).name == DEMO
    remember_pair("mine", demo.target, demo.draft)
    remember_pair("gone", tmp_path / "gone.gguf", None)
    assert _first_choice(words()).name == "mine"
    assert _first_choice(words("--pair", DEMO)).name == DEMO
    remember_pair(DEMO, demo.target, demo.draft)
    assert _first_choice(words()).name == DEMO


@pytest.mark.slow
@pytest.mark.usefixtures("own_state")
async def test_a_loaded_pair_is_remembered() -> None:
    """Once it is loaded, not when that was tried."""
    app = chat(
        Script(), remember=lambda name, loading: remember_pair(name, loading.target, loading.draft)
    )
    async with app.run_test() as pilot:
        await until(pilot, lambda: [each.name for each in recent_pairs()] == ["scripted"])


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own for what the chat remembers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@table(
    ("options", "drafts"),
    [
        ((), "its own small model"),
        (("--drafter", "suffix"), "suffix lookup"),
        (("--drafter", "none"), "nothing"),
    ],
)
def test_an_installed_pair_is_read(options: Sequence[str], drafts: str) -> None:
    """What drafts depends on the choice of a drafter."""
    (demo,) = [each for each in find_offers(words(*options)) if each.name == DEMO]
    found = foresee_offer(demo, 0)
    assert (found.target, found.drafts, found.context) == ("target.gguf", drafts, 2048)
    assert found.quantisation == "Q4_0"
    assert found.fits


def test_a_pair_to_download_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the memory of this machine, with what the loaded pair frees; GPUs come first."""
    machine = Machine(9 * 10**9, ())
    monkeypatch.setattr("specchat.catalogue.pair_outlook.find_machine", lambda: machine)
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 16 * 10**9)
    offers = {each.name: each for each in find_offers(words())}
    small, large = offers["qwen3-8b"], offers["qwen3-14b"]
    assert foresee_offer(small, 0).memory == "≈ 8.1 of 8.2 GB memory"
    assert foresee_offer(small, 0).fits
    assert foresee_offer(large, 0).memory == "≈ 12.2 of 8.2 GB memory"
    assert not foresee_offer(large, 0).fits
    assert foresee_offer(large, 5 * 10**9).fits
    machine = Machine(9 * 10**9, (Device("CUDA0", "A GPU", "gpu", 0, 24 * 10**9),))
    assert foresee_offer(large, 0).memory == "≈ 12.2 of 22.9 GB GPU memory"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """In its outlook: the list and all other pairs are there."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    choice = PairChoice("broken", "", Loading(broken))
    found = foresee_offer(Offer("broken", "", choose=lambda: choice), 0)
    assert not found.fits
    assert str(broken) in found.notice


# --- opening a file


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with folders and files, of which only models can be opened."""
    for name in ("models/big/one.gguf", "models/big/one-two.GGUF", "models/.hidden/x.gguf",
                 "models/notes.txt", "models/bigger/three.gguf"):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("models")
def test_a_typed_path_lists_folders_and_models() -> None:
    """Also from the home folder; hidden ones once their dot is typed."""
    names = {typed: [name for name, _ in entries_of(typed)] for typed in
             ("~/models/", "models/b", "models/BIG/", "models/.h", "~/models/big/one-", "~",
              "/nowhere/at/all", "models/\0", "~missing-user/")}  # fmt: skip
    assert names["~/models/"] == ["../", "big/", "bigger/"]
    assert names["models/b"] == ["big/", "bigger/"]
    assert names["models/.h"] == [".hidden/"]
    assert names["~/models/big/one-"] == ["one-two.GGUF"]
    assert names["~"] == ["../", "models/"]
    assert names["/nowhere/at/all"] == names["models/\0"] == []
    assert names["~missing-user/"] == ["../"]


def test_names_with_control_characters_are_left_out(models: Path) -> None:
    """Completing one would write it to the terminal."""
    (models / "models" / "a\x1b]0;title\x07b").mkdir()
    assert [name for name, _ in entries_of("models/")] == ["../", "big/", "bigger/"]


def test_the_folder_above_a_deleted_one_is_relative(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no absolute path to show."""
    assert _parent("") == f"{models.parent}/"
    gone = models / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert _parent("") == "./"


def test_a_file_whose_state_cannot_be_read_is_left_out() -> None:
    """As in a folder that must not be entered; a name that is too long gives an error, too."""
    recent = RecentPair("mine", f"/{'m' * 300}.gguf", f"/{'d' * 300}.gguf", 1.0)
    assert list(_reopened(words(), [recent], ())) == []
    assert choice_of_recent(words(), recent) is None
    with pytest.raises(ModelNotFound, match="no such file"):
        require_savable("mine", Path(recent.target), None)
    assert model_at(Path(recent.target)) is None
    assert size_with_parts(Path(recent.target)) == 0


def test_tab_completes_what_all_entries_share() -> None:
    """No more than that, and never less than was typed."""
    assert completed("~/m", ["models/"]) == "~/models/"
    assert completed("models/b", ["big/", "bigger/"]) == "models/big"
    assert completed("models/", ["../", "big/", "bigger/"]) == "models/big"
    assert completed("models/big", ["big/", "bigger/"]) == "models/big"
    assert completed("x", []) == "x"


@pytest.mark.slow
@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_file_is_found_with_few_keys(size: tuple[int, int]) -> None:
    """Tab completes, Enter enters the highlighted folder and opens the highlighted file."""
    named: list[str] = []

    def find(name: str) -> Offer:
        named.append(name)
        return here("mine")

    app = chat(Script(), open_file=find)
    async with app.run_test(size=size) as pilot:
        await open_models(pilot, app)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, FileScreen))
        await type_keys(pilot, *"~/mo", "tab")
        line = app.screen.query_one(Input)
        assert line.value == "~/models/"
        await until(pilot, lambda: "bigger/" in screen_text(app))
        for key in ("Open", "Complete", "Cancel"):
            assert f" {key}" in screen_text(app)
        await type_keys(pilot, "enter")
        assert line.value == "~/models/big/"
        await until(pilot, lambda: "one-two.GGUF  4 bytes" in screen_text(app))
        await type_keys(pilot, *"one.", "enter")
        await until(pilot, lambda: app.pair_controller.pair.name == "mine")
    assert named == ["~/models/big/one.gguf"]


@pytest.mark.slow
@pytest.mark.usefixtures("models")
async def test_a_path_that_leads_nowhere_is_said_to() -> None:
    """`..` leads up; the dialog closes without a file on Esc."""
    app = chat(Script())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await open_models(pilot, app)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, FileScreen))
        await type_keys(pilot, *"models/nothing")
        await until(pilot, lambda: "No folder or .gguf file starts like this." in screen_text(app))
        await type_keys(pilot, *["backspace"] * 7)
        await until(pilot, lambda: "bigger/" in screen_text(app))
        await type_keys(pilot, "up", "enter")
        assert app.screen.query_one(Input).value == ""
        await until(pilot, lambda: "models/" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))


async def test_what_a_head_takes_and_how_to_get_one_is_named() -> None:
    """Of a pair that is here, before it is loaded."""
    lacks = "lacks its head, an MTP head: `specchat pull org/heads/mtp.gguf` gets it"
    takes = "the head takes 0.3 GB of memory on the GPU"
    offers = [here(name, outlook=replace(FITTING, head=head))
              for name, head in (("big", lacks), ("other", takes))]  # fmt: skip
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=(160, 36)) as pilot:
        await open_models(pilot, app)
        assert lacks.capitalize().replace("mtp head", "MTP head") in await mark(pilot, "big")
        assert "The head takes 0.3 GB of memory on the GPU" in await mark(pilot, "other")


async def test_the_speed_that_passes_predict_is_named() -> None:
    """Also in the list, of a pair that is here and has not answered yet."""
    speed = "predicted 61.2 tokens/s"
    offers = [here("big", outlook=replace(FITTING, rate=61.2, speed=speed))]
    app = chat(Script(), offers=lambda: offers)
    async with app.run_test(size=(160, 36)) as pilot:
        await open_models(pilot, app)
        assert speed.replace("predicted", "Predicted") in await mark(pilot, "big")
        assert re.search(r"big .*  ≈61 ", screen_text(app))

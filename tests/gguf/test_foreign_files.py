"""Files that are not what they claim: each is named for what it is, and none is offered."""

from __future__ import annotations

import io
import json
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
from textual.widgets import Input

from conftest import WriteModel
from foreign_files import FILES, PARTS, SHOWN, Foreign, unwritten_end
from scripted_chat import Script, chat
from specchat import Engine
from specchat.catalogue.draft_choice import find_drafts
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.cli.offers import open_file
from specchat.cli.option_arguments import complete
from specchat.errors import ModelWontLoad
from specchat.gguf.foreign_file import describe
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.reader import read_header
from specchat.gguf.unfinished_file import why_unwritten
from specchat.tui.screens.file_screen import FileScreen
from specchat.tui.screens.model_screen import ModelScreen
from tui.driving import until


class CountedFile(io.BufferedReader):
    """A file that counts what is read of it."""

    def __init__(self, file: io.FileIO, sizes: list[int]) -> None:
        super().__init__(file)
        self._sizes = sizes

    def read(self, size: int | None = -1) -> bytes:
        """Count the bytes."""
        content = super().read(size)
        self._sizes.append(len(content))
        return content


COMMANDS = ("LFS pointer", "zeros", "never written", "adapter", "parts swapped")
"""Some of each sort, for what takes a second."""


@pytest.fixture
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Write a file, and return its path and what is to be said of it."""
    file: Foreign = FILES[request.param]
    path = tmp_path / "a folder" / file.name
    path.parent.mkdir()
    file.write(path)
    return path, file.says


@pytest.mark.parametrize("foreign", FILES, indirect=True)
def test_it_is_named_for_what_it_is(tiny: WriteModel, foreign: tuple[Path, str]) -> None:
    """As target and as draft model: in one line, with its path first and the next step last."""
    path, says = foreign
    for target, draft in ((path, None), (tiny("llama"), path)):
        with pytest.raises(ModelWontLoad) as refusal:
            Engine.load(target, draft, ctx=256, threads=1)

        message = str(refusal.value)
        named, _, advice = message.rpartition(": ")
        assert message.startswith(str(path.parent))
        assert says in message
        assert len(advice.split()) > 2 or "unpack it" in advice
        assert named
        assert message.isprintable()
        assert len(message) - len(str(path)) < 250


@pytest.mark.slow(keep=9)
@pytest.mark.parametrize("foreign", FILES, indirect=True)
def test_it_is_shown_but_not_offered(
    tiny: WriteModel,
    foreign: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """`show` says what it is; neither `list` nor the search for drafts has it."""
    path, says = foreign
    for variable in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setenv("LLAMA_CACHE", str(path.parent))
    target = path.with_name("target.gguf")
    shutil.copyfile(tiny("llama"), target)

    code = main(["show", str(path)])
    shown = capsys.readouterr()
    assert code == (0 if request.node.callspec.params["foreign"] in SHOWN else 1)
    if code:
        assert says in shown.err
        assert shown.err.count("\n") == 1
    else:
        lines = shown.out.splitlines()
        (kind,) = (line for line in lines if line.startswith("kind "))
        assert says in kind
        assert not {"draft", "template", "vocabulary"} & {line.partition(" ")[0] for line in lines}
    assert main(["list", "--json"]) == 0
    local = json.loads(capsys.readouterr().out)["local"]
    whole = [PARTS] if "a later part" in says else []  # it is listed by its first part
    assert [each["name"] for each in local] == [*whole, "target.gguf"]
    assert find_drafts(target).fitting == ()


@pytest.mark.slow
@pytest.mark.parametrize("foreign", COMMANDS, indirect=True)
def test_commands_say_it_in_one_line(
    tiny: WriteModel, foreign: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """`ask` and `check`, of a target and of a draft model."""
    path, says = foreign
    target = str(tiny("llama"))
    for words in (
        ["ask", "hi", "--no-stdin", "--target", str(path), "--draft", "none"],
        ["ask", "hi", "--no-stdin", "--target", target, "--draft", str(path)],
        ["check", "--target", str(path), "--draft", target],
        ["check", "--target", target, "--draft", str(path)],
    ):
        assert main([*words, "--ctx", "256", "--threads", "1", "--offline"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
        assert str(path.parent) in line


@pytest.mark.slow(keep=1)
@pytest.mark.anyio
@pytest.mark.parametrize("foreign", COMMANDS, indirect=True)
async def test_the_chat_says_it_and_keeps_its_model(foreign: tuple[Path, str]) -> None:
    """A file opened from F8 is read before the loaded model is freed for it."""
    path, says = foreign
    arguments = parse(["chat", "--offline"])
    complete(arguments)
    app = chat(Script(), open_file=partial(open_file, arguments))
    async with app.run_test(size=(110, 40), notifications=True) as pilot:
        await until(pilot, lambda: app.pair_controller.session is not None)
        await pilot.press("f8")
        await until(pilot, lambda: isinstance(app.screen, ModelScreen))
        await pilot.press("ctrl+o")
        await until(pilot, lambda: isinstance(app.screen, FileScreen))
        app.screen.query_one(Input).value = str(path)
        await pilot.press("enter")
        await until(pilot, lambda: any(says in it.message for it in app.notices.latest))
        assert app.pair_controller.pair.name == "scripted"
        assert app.pair_controller.session is not None


def test_a_model_that_ends_in_zeros_but_has_a_last_byte_is_whole(tmp_path: Path) -> None:
    """Only a file whose whole end reads as zeros was never written."""
    path = tmp_path / "model.gguf"
    unwritten_end(path)
    assert why_unwritten(read_header(path))
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\1")
    assert why_unwritten(read_header(path)) is None


def test_a_model_whose_last_tensor_ends_in_zeros_is_whole(tmp_path: Path) -> None:
    """Programs leave holes for zeros; what comes before them has been written."""
    path = tmp_path / "model.gguf"
    unwritten_end(path)
    header = read_header(path)
    last = max(header.tensors.values(), key=lambda tensor: tensor.offset)
    with path.open("r+b") as file:
        file.seek(header.data_position + last.offset)
        file.write(b"\1")
    assert why_unwritten(read_header(path)) is None
    assert read_whole_model(path).parts == (path,)


@pytest.mark.parametrize("ending", [".part", ".crdownload", ".aria2"])
def test_a_download_that_goes_on_is_recognized_by_the_file_beside_it(
    tmp_path: Path, ending: str
) -> None:
    """Browsers reserve the name with an empty file."""
    path = tmp_path / "model.gguf"
    path.touch()
    path.with_name(f"{path.name}{ending}").touch()
    with pytest.raises(
        ModelWontLoad, match=rf"unfinished download .with model.gguf{ending} beside"
    ):
        read_whole_model(path)


@pytest.mark.parametrize("kind", ["sparse", "safetensors", "llamafile in ELF", "noise"])
def test_no_more_of_a_file_is_read_than_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Its first and last 64 KiB, however large it is."""
    path = tmp_path / "model.gguf"
    FILES[kind].write(path)
    os.truncate(path, 2**33)
    with path.open("rb", buffering=0) as file:
        sizes: list[int] = []
        counted = CountedFile(file, sizes)
        describe(path, counted)
    assert sum(sizes) <= 2**17


def test_a_name_as_long_as_can_be_is_no_obstacle(tmp_path: Path) -> None:
    """No file can be beside it."""
    path = tmp_path / f"{'m' * 250}.gguf"
    path.touch()
    with pytest.raises(ModelWontLoad, match="is empty: download it again"):
        read_whole_model(path)

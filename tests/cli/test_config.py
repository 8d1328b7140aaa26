"""`specchat config`, and the settings that other commands read."""

from __future__ import annotations

import json
import re
import shlex
import stat
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from specchat.catalogue.pairs import find_pair
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.cli.model_arguments import generate_options
from specchat.cli.option_arguments import complete, settings_of
from specchat.options.declarations import (
    ChatOptions,
    GenerateOptions,
    LoadOptions,
    NetworkOptions,
    PairOptions,
    ScreenOptions,
    ServerOptions,
)
from specchat.settings.editor import documented_settings
from specchat.settings.schema import SETTINGS
from specchat.settings.sources import settings_path

MODEL = {option.name for option in settings_of(PairOptions, LoadOptions, NetworkOptions)}
ANSWER = {*MODEL, *(each.name for each in settings_of(GenerateOptions)), "chat.system_prompt"}
SCREEN = {option.name for option in settings_of(ChatOptions, ScreenOptions)}
SERVER = {option.name for option in settings_of(ServerOptions)}
PROMPT = {"chat.system_prompt"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a settings file, named by the environment, that does not exist yet."""
    path = tmp_path / "my config.toml"
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    return path


def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Set an editor that runs a line of Python with the file's `path`."""
    script = tmp_path / "an editor.py"
    script.write_text(f"import sys, pathlib\npath = pathlib.Path(sys.argv[-1])\n{code}\n")
    command = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} --wait"
    monkeypatch.setenv("VISUAL", command)


def taken(*words: str) -> Namespace:
    """Return the arguments of a command line, completed by the settings."""
    arguments = parse(words)
    complete(arguments)
    return arguments


def test_path_is_printed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the file is there or not."""
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{file}\n"


def test_without_a_name_it_is_in_the_config_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """The user's, which is a temporary one in tests."""
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out.endswith("config.toml\n")
    assert "xdg_config_home" in str(settings_path())


def test_show_prints_every_setting_and_its_source(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting has one line."""
    file.write_text(
        '[sampling]\ntop_k = 3\nstop = "a"\n[keys]\nquit = "ctrl+x"\n'
        '[model]\npair = "a\\u001bb"\ntensor_split = "3,1"'
    )
    monkeypatch.setenv("SPECCHAT_MIN_P", "0.25")
    assert main(["config", "show"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert [line[0] for line in lines] == [*(setting.name for setting in SETTINGS), "keys.quit"]
    assert ["sampling.top_k", "=", "3", "file"] in lines
    assert ["sampling.min_p", "=", "0.25", "environment"] in lines
    assert ["sampling.top_p", "=", "0.95", "default"] in lines
    assert ["sampling.seed", "=", '"random"', "default"] in lines
    assert ["model.tensor_split", "=", '"3,1"', "file"] in lines
    assert ["sampling.stop", "=", '["a"]', "file"] in lines
    assert ["model.target", "=", "-", "default"] in lines
    assert ["model.pair", "=", '"a\\u001bb"', "file"] in lines
    assert ["keys.quit", "=", '"ctrl+x"', "file"] in lines


def test_show_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is one object: the path, and each setting's value and source."""
    file.write_text("[model]\ntarget = '/t.gguf'\n")
    assert main(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)

    assert shown["path"] == str(file)
    assert shown["settings"]["model.target"] == {"value": "/t.gguf", "source": "file"}
    assert shown["settings"]["model.pair"] == {"value": None, "source": "default"}


def test_edit_creates_the_documented_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The editor's command may have arguments."""
    editor(tmp_path, monkeypatch, "path.write_text(path.read_text() + 'quit = \"q\"\\n')")

    assert main(["config", "edit"]) == 0
    assert file.read_text() == f'{documented_settings()}quit = "q"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_edit_reports_the_wrong_line(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The file stays as the user left it; the environment is not read."""
    editor(tmp_path, monkeypatch, "path.write_text('# mine\\n[model]\\nctx = -1')")
    monkeypatch.setenv("SPECCHAT_CTX", "nonsense")

    assert main(["config", "edit"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"specchat: {file} line 3: model.ctx must be")
    assert said.count("\n") == 1
    assert file.read_text() == "# mine\n[model]\nctx = -1"


@pytest.mark.parametrize(
    ("command", "code", "what"),
    [
        ("no-such-editor-anywhere", 1, "no-such-editor-anywhere cannot be started"),
        ("'unclosed", 2, "VISUAL"),
        (f"{sys.executable} -c raise(SystemExit(3))", 1, "exit code 3"),
    ],
)
def test_an_editor_that_fails_is_named(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    code: int,
    what: str,
) -> None:
    """The error is one line."""
    monkeypatch.setenv("VISUAL", command)
    assert main(["config", "edit"]) == code
    said = capsys.readouterr().err
    assert what in said
    assert said.count("\n") == 1


def test_the_second_choice_is_editor_then_vi(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without VISUAL, EDITOR counts, as in other programs."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("EDITOR", "no-such-editor")
    main(["config", "edit"])
    monkeypatch.setenv("EDITOR", "")
    main(["config", "edit"])

    first, second = capsys.readouterr().err.splitlines()
    assert "no-such-editor" in first
    assert "the editor vi " in second


def test_wrong_settings_stop_a_command(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and the line of the file, or 2 and the variable."""
    file.write_text("[screen]\n\nstatistics = 'yes'\n")
    assert main(["ask", "hi"]) == 1
    assert f"{file} line 3: screen.statistics must be true" in capsys.readouterr().err
    file.write_text("")
    monkeypatch.setenv("SPECCHAT_TOP_P", "2")
    assert main(["ask", "hi"]) == 2
    assert "SPECCHAT_TOP_P must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("pair", "nope", "there is no pair named 'nope'"),
        ("target", "/nope.gguf", "/nope.gguf: no such file"),
        ("draft", "/nope.gguf", "/nope.gguf: no such file"),
    ],
)
def test_a_missing_model_is_reported_with_its_source(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    key: str,
    value: str,
    what: str,
) -> None:
    """The line or the variable that names it; neither if the command line does."""

    def said(*words: str) -> tuple[int, str]:
        code = main(["ask", "hi", *words])
        (line,) = capsys.readouterr().err.splitlines()
        return code, line

    file.write_text(f"[model]\n\n{key} = '{value}'\n")
    code, line = said()
    assert (code, line.startswith(f"specchat: {file} line 3: {what}")) == (1, True)
    code, line = said(f"--{key}", value)
    assert (code, line.startswith(f"specchat: {what}")) == (1, True)
    file.write_text("")
    monkeypatch.setenv(f"SPECCHAT_{key.upper()}", value)
    code, line = said()
    assert (code, line.startswith(f"specchat: SPECCHAT_{key.upper()}: {what}")) == (2, True)


def test_ask_takes_its_options_from_the_settings(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line overrides the environment, that the file, that the defaults."""
    file.write_text(
        "[sampling]\ntop_k = 1\nmin_p = 0.1\nseed = 3\n"
        "[decoding]\ndrafter = 'suffix'\n[chat]\nsystem_prompt = 'Be brief.'\n"
    )
    monkeypatch.setenv("SPECCHAT_MIN_P", "0.2")
    monkeypatch.setenv("SPECCHAT_TEMPERATURE", "0.5")
    arguments = taken("ask", "hi", "--temperature", "0", "--seed", "random")

    assert (arguments.temperature, arguments.min_p, arguments.top_k) == (0, 0.2, 1)
    assert (arguments.seed, arguments.top_p) == (None, 0.95)
    assert "sampling.top_p" not in arguments.settings.given
    assert (arguments.drafter, arguments.draft_length) == ("suffix", "auto")
    assert arguments.system_prompt == "Be brief."
    assert (arguments.ctx, arguments.threads, arguments.gpu_layers) == (0, None, None)
    assert taken("ask", "hi", "--drafter", "auto").drafter == "auto"


def test_a_pair_on_the_command_line_hides_the_files_target(file: Path) -> None:
    """And its draft model; a draft model alone joins the file's target."""
    file.write_text("[model]\ntarget = '/t.gguf'\ndraft = '/d.gguf'\n")
    demo = taken("ask", "hi", "--pair", "demo")
    assert (demo.pair, demo.target, demo.draft) == ("demo", None, None)
    other = taken("ask", "hi", "--draft", "other.gguf")
    assert (other.target, other.draft) == (Path("/t.gguf"), Path("other.gguf"))
    assert taken("tune").draft == Path("/d.gguf")


@pytest.mark.parametrize("command", ["bench", "tune", "check"])
def test_measuring_takes_the_model_alone(file: Path, command: str) -> None:
    """So results stay comparable whatever the settings for sampling and drafting are."""
    plain = vars(parse([command]))
    file.write_text(
        "[model]\nctx = 512\nthreads = 2\n[sampling]\ntemperature = 1.5\nmax_tokens = 3\n"
        "[decoding]\ndrafter = 'none'\ndraft_length = 0\n"
    )
    arguments = vars(taken(command))

    assert (arguments["ctx"], arguments["threads"]) == (512, 2)
    names = {"temperature", "max_tokens", "drafter", "draft_length", "rounds"} & set(plain)
    assert {name: arguments[name] for name in names} == {name: plain[name] for name in names}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("ask", ANSWER),
        ("chat", ANSWER | SCREEN | SERVER),
        ("serve", ANSWER - PROMPT | SERVER),
        ("check", MODEL),
        ("bench", MODEL),
        ("tune", MODEL),
        ("list", {"network.offline"}),
    ],
)
def test_commands_read_the_settings_they_use(
    monkeypatch: pytest.MonkeyPatch, command: str, names: set[str]
) -> None:
    """An answer takes everything that concerns it, a measurement only how the model is loaded."""
    seen: list[Namespace] = []

    def run(arguments: Namespace) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr(f"specchat.cli.{command}.run", run)
    assert main([command]) == 0
    assert {option.name for option in seen[0].options} == names
    assert all(hasattr(seen[0], option.key) for option in seen[0].options)


def test_a_pairs_own_sampling_ranks_between(file: Path) -> None:
    """Above the defaults, below the file: the demo pair has a temperature of its own."""
    pair = find_pair("demo")
    file.write_text("")
    seen = [generate_options(taken("ask", "hi"), pair)]
    file.write_text("[sampling]\ntemperature = 0.8\ntop_k = 4\n")
    seen.append(generate_options(taken("ask", "hi"), pair))
    seen.append(generate_options(taken("ask", "hi", "--temperature", "1"), pair))

    assert [options["temperature"] for options in seen] == [0.3, 0.8, 1]
    assert ["top_k" in options for options in seen] == [False, True, True]


def test_help_names_the_built_in_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the engine, behind each option's help."""
    with pytest.raises(SystemExit):
        main(["ask", "--help"])
    shown = " ".join(capsys.readouterr().out.split())

    defaults = {option.name: option for option in GenerateOptions.fields() if option.table}
    assert defaults["sampling.temperature"].default == GenerateOptions().temperature == 0.8
    for option in defaults.values():
        if default := option.shown(option.default):
            pattern = rf" {option.flag} \S+ [^-]*(-1 is all )?\(default: {re.escape(default)}\)"
            assert re.search(pattern, shown), option.flag


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[screen]\ntheme = 3\n", "line 2: screen.theme must be a non-empty string, not 3"),
        ("[keys]\n\nhelpp = 'f1'\n", "line 3: unknown action helpp: use "),
        ("[keys]\nhelp = 'not a key'\n", "line 2: keys.help must be a key such as"),
    ],
)
def test_the_chat_does_not_open_on_wrong_settings(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    what: str,
) -> None:
    """The wrong line of the file is reported in one line before there is a screen."""
    path = tmp_path / "wrong.toml"
    path.write_text(text, "utf-8")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(path))
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)

    assert main([]) == 1
    assert what in capsys.readouterr().err


def test_the_chat_does_not_open_on_a_wrong_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Variables of the screen's options, which no other command reads, are checked too."""
    monkeypatch.setenv("SPECCHAT_COLOUR_TOKENS", "perhaps")

    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("specchat: SPECCHAT_COLOUR_TOKENS must be true")


@pytest.mark.parametrize(
    "words",
    [["list"], ["config", "show"], ["pull", "demo", "--offline"]],
    ids=lambda words: words[0],
)
def test_commands_work_beside_a_clusters_service_of_this_name(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr names the variable; `--port` keeps its default."""
    monkeypatch.setenv("SPECCHAT_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("SPECCHAT_SERVICE_HOST", "10.0.0.1")
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0].startswith("ignoring SPECCHAT_")
    assert shown.err.count("ignoring") == 1
    assert "ignoring" not in shown.out

"""Reading settings: which source overrides which, and the errors for wrong values."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from specchat.errors import InvalidOption, SettingsError
from specchat.options.declarations import NO_DRAFT
from specchat.settings.schema import SETTINGS
from specchat.settings.sources import OTHERS, Settings, read_settings, settings_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of a settings file that does not exist yet."""
    return tmp_path / "config.toml"


def read(path: Path, text: str | bytes, **environ: str) -> Settings:
    """Return the settings of a file with this text and of this environment."""
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_settings(path, environ)


def test_without_any_source_the_defaults_hold(path: Path) -> None:
    """A missing file sets nothing."""
    settings = read_settings(path, {})

    assert settings["sampling.temperature"] == 0.8
    assert settings.source("sampling.temperature") == "default"
    assert settings["model.pair"] is None
    assert settings.key_bindings == {}


def test_the_strongest_source_wins(path: Path) -> None:
    """The command line, then the environment, then the file; the source is known."""
    file = "[sampling]\ntop_k = 1\nmin_p = 0.1\ntemperature = 1\n"
    settings = read(path, file, SPECCHAT_TOP_K="2", SPECCHAT_MIN_P="0.2")
    settings = settings.over({"sampling.top_k": 3}, "command line")

    names = ("sampling.top_k", "sampling.min_p", "sampling.temperature", "sampling.top_p")
    assert [settings[name] for name in names] == [3, 0.2, 1, 0.95]
    assert [settings.source(name) for name in names] == [
        "command line", "environment", "file", "default",
    ]  # fmt: skip


def test_an_empty_variable_sets_nothing(path: Path) -> None:
    """This lets a script switch a variable off."""
    assert read(path, "[sampling]\ntop_k = 1\n", SPECCHAT_TOP_K="")["sampling.top_k"] == 1


@pytest.mark.parametrize("name", ["model.pair", "model.target"])
def test_naming_a_target_hides_the_one_below(path: Path, name: str) -> None:
    """Its draft model too, which would not fit; a draft model alone joins the target below."""
    settings = read(path, "[model]\ntarget = '/t'\ndraft = '/d'\n")

    assert settings.over({"model.draft": "other"}, "environment")["model.target"] == Path("/t")
    above = settings.over({name: "x"}, "environment")
    assert above[name] == "x"
    assert above["model.draft"] is None
    assert (above["model.pair"], above["model.target"]).count(None) == 1


def test_paths_begin_at_home_or_at_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's do not depend on the current folder; names of local models are kept."""
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("USERPROFILE", "/home/someone")
    settings = read(path, "[model]\ntarget = '~/t.gguf'\ndraft = 'd.gguf'\n")

    assert settings["model.target"] == Path("/home/someone/t.gguf")
    assert settings["model.draft"] == path.parent / "d.gguf"
    local = read(path, "[model]\ntarget = 'qwen3:8b'\ndraft = 'none'\n")
    assert (local["model.target"], local["model.draft"]) == (Path("qwen3:8b"), NO_DRAFT)
    assert read(path, "", SPECCHAT_TARGET="t.gguf")["model.target"] == Path("t.gguf")


def test_keys_are_free_names(path: Path) -> None:
    """The chat knows its actions; the file holds their keys."""
    settings = read(path, '[keys]\nquit = "ctrl+x,f10"\nnew-chat = "ctrl+n"\n')

    assert settings.key_bindings == {"quit": "ctrl+x,f10", "new-chat": "ctrl+n"}
    assert settings.names[-2:] == ("keys.quit", "keys.new-chat")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('[sampling]\n# no\ntemperature = "hot"', 3,
         'sampling.temperature must be a number of at least 0, not "hot"'),
        ("[sampling]\ntemperature = nan", 2, "a number of at least 0, not nan"),
        ("[sampling]\ntemperature = true", 2, "not true"),
        ("sampling.top_p = 0", 1, "sampling.top_p must be a number above 0 and at most 1, not 0"),
        ("\nsampling = { top_k = 1, min_p = 2 }", 2, "min_p must be a number from 0 to 1, not 2"),
        ("[sampling]\ntop_k = 1.5", 2, "a whole number of at least 0, not 1.5"),
        ("[sampling]\ntop_k = 0xffffffffffffffffff", 2, "sampling.top_k must be"),
        (f"[sampling]\ntop_k = 0x{'f' * 5000}", 2, "not a number that long"),
        ("[sampling]\nseed = 'no'", 2, f'or a whole number from 0 to {2**63 - 1}, not "no"'),
        ("[model]\nctx = 134217729", 2, "from 0 to 134217728, not 134217729"),
        ("[model]\nflash_attention = false", 2, "one of auto, on, off, not false"),
        ("[model]\nthreads = [1]", 2, "not a list"),
        ("[model]\npair = ''", 2, "model.pair must be a non-empty string, not"),
        ("[model]\ntarget = '~missing-user/x'", 2, "there is no home folder for"),
        ("[screen]\nstatistics = 1", 2, "true or false, not 1"),
        ("[screen]\ntheme = 2020-01-02", 2, "not 2020-01-02"),
        ("[chat]\nsystem_prompt = {a = 1}", 2, "not a table"),
        ('[chat]\nsystem_prompt = """\n[keys]\n"""\nhistory = 3', 5, "chat.history must be"),
        ("[keys]\n\nquit.now = 'x'", 3, "keys.quit must be a key such as"),
        ("[keys]\n'a b' = 'x'", 2, "unknown setting keys.a b"),
        ("[sampling]\ntopk = 1", 2, "unknown setting sampling.topk (did you mean sampling.top_k?)"),
        ("[model]\ntop_k = 1", 2, "unknown setting model.top_k (did you mean sampling.top_k?)"),
        ("\ntop_k = 1", 2, "unknown setting top_k (did you mean sampling.top_k?)"),
        ("'sampling.top_k' = 1", 1, "unknown setting sampling.top_k"),
        ("[smapling]\ntop_k = 1", 1, "unknown table smapling (did you mean sampling?)"),
        ("[[sampling]]\ntop_k = 1", 1, "sampling must be a table, with [sampling] above"),
        ("keys = 3", 1, "keys must be a table"),
        ("[model]\ntarget = 'a'\npair = 'b'", 2, "model.pair already names a target"),
        ("[model]\n\nctx = ", 3, "this is not TOML: Invalid value"),
        ("[model]\nctx 3\n\n", 2, "this is not TOML: Expected '='"),
        ("[model]\nctx = 3\nctx = 4\nthreads = 1", 3, "this is not TOML: Cannot overwrite"),
        ('[chat]\nsystem_prompt = """a\nb\n\n', 2, "this is not TOML"),
        (f"\nmodel = {'[' * 5000}", 2, "this is not TOML"),
        (f"\nmodel = {'9' * 5000}", 2, "this is not TOML"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(path: Path, text: str, line: int, what: str) -> None:
    """In one line: the file, the line in it, the rule and the value."""
    with pytest.raises(SettingsError) as raised:
        read(path, text)

    assert str(raised.value).startswith(f"{path} line {line}: ")
    assert what in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_text_is_named(path: Path) -> None:
    """Other encodings with the line; folders and files over 1 MB too."""
    with pytest.raises(SettingsError, match=r"config\.toml line 3: this is not UTF-8"):
        read(path, b"[chat]\n\nsystem_prompt = '\xff'\n")
    with pytest.raises(SettingsError, match=r"larger than 1 MB"):
        read(path, b"#" * (1 << 20) + b"\n")
    assert read(path, b"#" * ((1 << 20) - 1) + b"\n").given == {}
    with pytest.raises(SettingsError, match="cannot be read"):
        read_settings(path.parent, {})


def test_an_unreadable_file_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the operating system's reason."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"config\.toml cannot be read: Permission denied"):
        read_settings(path, {})


def test_a_byte_order_mark_is_accepted(path: Path) -> None:
    """Editors on Windows write one."""
    assert read(path, b"\xef\xbb\xbf[sampling]\r\ntop_k = 2\r\n")["sampling.top_k"] == 2


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("SPECCHAT_TEMPERATURE", "hot", '^SPECCHAT_TEMPERATURE must .*"hot"$'),
        ("SPECCHAT_TEMPERATURE", "inf", 'SPECCHAT_TEMPERATURE must .* not "inf"'),
        ("SPECCHAT_TOP_K", "1.5", "SPECCHAT_TOP_K must "),
        ("SPECCHAT_THREADS", "0", 'SPECCHAT_THREADS must .*1 to 512, not "0"'),
        ("SPECCHAT_DRAFTER", "magic", "SPECCHAT_DRAFTER must .*suffix"),
        ("SPECCHAT_HISTORY", "maybe", "SPECCHAT_HISTORY must be true or false"),
        ("SPECCHAT_DRAFT", "~missing-user/x", "SPECCHAT_DRAFT: there is no home"),
    ],
)
def test_a_wrong_variable_is_named(path: Path, name: str, value: str, what: str) -> None:
    """An invalid variable is a usage error, as on the command line."""
    with pytest.raises(InvalidOption, match=what):
        read_settings(path, {name: value})


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("SPECCHAT_TEMPRATURE", " (did you mean SPECCHAT_TEMPERATURE?)"),
        ("SPECCHAT_GPU_LAYER", " (did you mean SPECCHAT_GPU_LAYERS?)"),
        ("SPECCHAT_XYZXYZ", ""),
    ],
)
def test_an_unknown_variable_is_refused(path: Path, name: str, end: str) -> None:
    """Like an unknown name in the file; an empty one sets nothing."""
    with pytest.raises(InvalidOption, match=f"^{re.escape(f'unknown variable {name}{end}')}$"):
        read_settings(path, {name: "1"})
    assert read_settings(path, {name: ""}).given == {}


SERVICE = {
    "SPECCHAT_SERVICE_HOST": "10.0.0.1",
    "SPECCHAT_SERVICE_PORT": "80",
    "SPECCHAT_SERVICE_PORT_HTTP": "80",
    "SPECCHAT_PORT": "tcp://10.0.0.1:80",
    "SPECCHAT_PORT_80_TCP": "tcp://10.0.0.1:80",
    "SPECCHAT_PORT_80_TCP_PROTO": "tcp",
    "SPECCHAT_PORT_80_TCP_PORT": "80",
    "SPECCHAT_PORT_80_TCP_ADDR": "10.0.0.1",
    "SPECCHAT_PORT_53_UDP": "udp://10.0.0.1:53",
    "SPECCHAT_GPU_SERVICE_HOST": "fd00::1",
    "SPECCHAT_GPU_PORT": "tcp://[fd00::1]:80",
    "SPECCHAT_NAME": "/chat/specchat",
    "SPECCHAT_ENV_LANG": "C",
}
"""What Kubernetes and Docker's links set for services named specchat and specchat-gpu."""


@pytest.mark.parametrize("name", SERVICE)
def test_a_variable_of_a_clusters_service_is_ignored_with_a_notice(path: Path, name: str) -> None:
    """It is a setting's only by its name."""
    settings = read_settings(path, {name: SERVICE[name], "SPECCHAT_TOP_K": "7"})
    assert dict(settings.given) == {"sampling.top_k": 7}
    assert settings.notice.startswith(f"ignoring {name}, set for a service of this name")


def test_all_variables_of_a_service_take_one_line(path: Path) -> None:
    """Without them there is no notice; others of such names are still refused."""
    assert f" and {len(SERVICE) - 1} more, set for" in read_settings(path, SERVICE).notice
    assert read_settings(path, {"SPECCHAT_TOP_K": "7"}).notice == ""
    for name, value in (
        ("SPECCHAT_SERVICE_HOSTS", "10.0.0.1"),
        ("SPECCHAT_PORT_TCP", "80"),
        ("SPECCHAT_PORTS", "tcp://10.0.0.1:80"),
    ):
        with pytest.raises(InvalidOption, match=f"^unknown variable {name}"):
            read_settings(path, {name: value})


def test_other_variables_of_specchat_are_allowed() -> None:
    """Every one that the package and the scripts mention."""
    root = Path(__file__).parents[2]
    texts = [
        each.read_text("utf-8")
        for folder in ("specchat", "scripts")
        for each in (root / folder).rglob("*")
        if each.suffix in {".py", ".sh", ".ps1"}
    ]
    names = {name for text in texts for name in re.findall(r"SPECCHAT_[A-Z_]*[A-Z]", text)}
    known = {setting.variable for setting in SETTINGS}

    assert {"SPECCHAT_CONFIG", "SPECCHAT_DEBUG", "SPECCHAT_OFFLINE"} <= names
    assert names <= known | OTHERS


def test_variables_mean_what_the_file_means(path: Path) -> None:
    """Words in place of numbers, and switches."""
    environ = {"SPECCHAT_SEED": "random", "SPECCHAT_HISTORY": "False", "SPECCHAT_GPU_LAYERS": "7"}
    settings = read_settings(path, environ)

    assert settings["sampling.seed"] is None
    assert settings.source("sampling.seed") == "environment"
    assert settings["chat.history"] is False
    assert settings["model.gpu_layers"] == 7


def test_two_targets_in_the_environment_are_refused(path: Path) -> None:
    """Neither overrides the other."""
    with pytest.raises(InvalidOption, match="SPECCHAT_PAIR and SPECCHAT_TARGET"):
        read_settings(path, {"SPECCHAT_PAIR": "demo", "SPECCHAT_TARGET": "x"})


def test_another_file_can_be_named(path: Path) -> None:
    """SPECCHAT_CONFIG names it, and it must exist."""
    named = {"SPECCHAT_CONFIG": str(path)}
    assert settings_path(named) == path
    with pytest.raises(InvalidOption, match=r"SPECCHAT_CONFIG: .* no such file"):
        read_settings(environ=named)
    path.write_text("[sampling]\ntop_k = 5\n")
    assert read_settings(environ=named)["sampling.top_k"] == 5
    assert settings_path({}).name == "config.toml"
    assert settings_path({}) != path


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """There may never be anything to read."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match="is a pipe, not a file"):
        read_settings(tmp_path / "pipe", {})


def test_a_key_of_very_many_parts_is_read_soon(path: Path) -> None:
    """The error comes within seconds of the processor's time."""
    began = time.process_time()
    with pytest.raises(SettingsError):
        read(path, "a." * 50_000 + "b = 1")
    with pytest.raises(SettingsError):
        read(path, "[sampling]\n" + "x = {" + "a." * 50_000 + "b = 1}")
    assert time.process_time() - began < 10

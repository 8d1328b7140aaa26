"""Workers named by the settings, a pair or the command line, without asking any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import WriteModel
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.cli import main
from specchat.cli.arguments import parse
from specchat.cli.model_arguments import chosen_pair, loading_of, save_loaded
from specchat.cli.option_arguments import complete
from specchat.engine.api import EngineFacts
from specchat.planning.device import Device, keep_gpus, keep_workers

FACTS = EngineFacts(
    target="far", draft=None, context=512, has_chat_template=True,
    speculation_off_reason=None, draft_off_reason=None, longest_draft=4,
)  # fmt: skip
CARD = Device("CUDA0", "RTX 4090", "gpu", 0, 24 * 10**9, worker="10.0.0.2:50052")


@pytest.fixture(autouse=True)
def _own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    keep_gpus([])
    keep_workers([CARD])


def workers_of(*words: str) -> tuple[str, ...]:
    """Return the workers that a command line leads to."""
    arguments = parse(["ask", *words, "hi"])
    complete(arguments)
    return tuple(loading_of(arguments, chosen_pair(arguments)).workers)


def test_the_command_line_comes_before_the_settings_and_they_before_the_pair(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`none` uses none of either."""
    path = own_catalogue_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'[pair.far]\ndescription = "x"\ntarget = "{tiny("llama")}"\nworkers = ["10.0.0.2"]\n'
    )
    assert workers_of() == ()
    assert workers_of("--pair", "far") == ("10.0.0.2:50052",)
    assert workers_of("--pair", "far", "--worker", "none") == ()
    assert workers_of("--worker", "a:1", "--worker", "b") == ("a:1", "b:50052")
    monkeypatch.setenv("SPECCHAT_WORKERS", "10.0.0.9,[fd00::2]:7")
    assert workers_of("--pair", "far") == ("10.0.0.9:50052", "[fd00::2]:7")
    assert workers_of("--worker", "none") == ()


def test_a_saved_pair_keeps_the_workers_of_the_command_line(tiny: WriteModel) -> None:
    """Those of the settings hold for every pair anyway."""
    target = tiny("llama")
    for words, kept in (
        (("--worker", "10.0.0.3"), ("10.0.0.3:50052",)),
        (("--worker", "a", "--worker", "b:1"), ("a:50052", "b:1")),
        ((), ()),
    ):
        arguments = parse(["ask", "--target", str(target), "--save-as", "far", *words, "hi"])
        complete(arguments)
        save_loaded(arguments, chosen_pair(arguments), FACTS)
        assert workers_of("--pair", "far") == kept


def test_list_and_show_count_the_workers_that_are_used(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their devices as last seen: neither asks the network."""
    main(["list", "--json"])
    assert json.loads(capsys.readouterr().out)["machine"]["gpus"] == []
    monkeypatch.setenv("SPECCHAT_WORKERS", "10.0.0.2")
    main(["list"])
    assert "GPU: RTX 4090 on 10.0.0.2 (24.0 GB)" in capsys.readouterr().out
    main(["show", str(tiny("llama"))])
    assert "fits the GPU" in capsys.readouterr().out

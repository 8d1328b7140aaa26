"""`specchat pull`, `list` and `rm` as a person and a script use them."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from catalogue_files import CONTENT, DRAFT, DRAFT_CONTENT, FILE, SHA256, blobs, parts
from hub_server import Fault, HubServer
from local_folders import put, put_in_hub
from specchat.catalogue.catalogue_file import own_catalogue_path
from specchat.catalogue.pairs import file_of, save_pair
from specchat.catalogue.tuned_settings import Tuned, keep_tuned
from specchat.cli import main, pull
from specchat.hub.cache import cache_root, lock_path
from specchat.hub.pins import keep_pin, pins_path
from specchat.hub.references import Reference
from specchat.hub.transfer import DownloadProgress
from specchat.llama.child_process import BuildReport, ChildResult
from specchat.planning.device import Device, Machine, find_machine
from specchat.settings.sources import settings_path
from tables import table

OWN = """
[pair.one]
description = "The first"
target = { repository = "org/model", file = "model-Q4.gguf" }
draft = { repository = "org/small", file = "quantised/small-Q8.gguf" }

[pair.two]
description = "The second"
target = { repository = "org/other", file = "other.gguf" }
draft = { repository = "org/small", file = "quantised/small-Q8.gguf" }
"""
TO_BEGIN_WITH = """
[pair.begin]
description = "Small enough"
target = { repository = "org/model", file = "model-Q4.gguf", bytes = 200000 }
recommended = true
"""
SMALL_MACHINE = Machine(free=1_000_000)
OTHER_CONTENT = CONTENT[:70_000]


@pytest.fixture(autouse=True)
def _two_pairs(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with two pairs that share their draft, and a hub that has them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("specchat.planning.forecast.total_bytes", lambda: 0)  # of any machine
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(OWN)
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.put(DRAFT.repository, DRAFT.file, DRAFT_CONTENT)
    hub.put("org/other", "other.gguf", OTHER_CONTENT)


def row(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, object]:
    """Return what `list --json` says of a name."""
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    found: dict[str, object] = next(each for each in rows if each["name"] == name)
    return found


def test_a_pair_is_pulled_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Its paths go to stdout, the target first; how to use it goes to stderr."""
    assert main(["pull", "one"]) == 0
    out, message = capsys.readouterr()

    target, draft = map(Path, out.splitlines())
    assert (target.read_bytes(), draft.read_bytes()) == (CONTENT, DRAFT_CONTENT)
    assert message.splitlines()[-1] == "ready: specchat ask --pair one"


def test_a_pair_that_is_here_is_not_fetched_again(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command reports it and prints the same paths, without a request."""
    main(["pull", "one"])
    first = capsys.readouterr().out
    hub.seen.clear()
    assert main(["pull", "one"]) == 0
    out, message = capsys.readouterr()

    assert (out, hub.seen) == (first, [])
    assert message.startswith("one is already installed\n")


def test_offline_says_in_one_line_what_is_missing(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no request, by option or by environment; installed files are enough."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "")  # for --offline sets it
    assert main(["pull", "one", "--offline"]) == 1
    message = capsys.readouterr().err
    assert message == (
        "specchat: offline, and org/model/model-Q4.gguf and org/small/quantised/small-Q8.gguf are"
        " not installed: pull again without --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE\n"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setenv("SPECCHAT_OFFLINE", "1")
    assert main(["pull", "one"]) == 1
    assert hub.seen == []

    monkeypatch.setenv("HF_HUB_OFFLINE", "")
    monkeypatch.setenv("SPECCHAT_OFFLINE", "0")
    assert main(["pull", "one"]) == 0
    hub.seen.clear()
    monkeypatch.setenv("SPECCHAT_OFFLINE", "1")
    assert main(["pull", "one"]) == 0
    assert main(["list"]) == 0
    assert hub.seen == []


def test_files_of_the_hub_are_pulled_by_their_addresses(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that uses them is shown, ready to copy."""
    address = f"{hub.address}/org/model/blob/main/model-Q4.gguf"
    assert main(["pull", address, "--draft", str(DRAFT)]) == 0
    out, message = capsys.readouterr()

    target, draft = out.splitlines()
    assert [Path(each).name for each in (target, draft)] == [FILE.name, DRAFT.name]
    assert message.splitlines()[-1] == f"ready: specchat ask --target {FILE} --draft {DRAFT}"
    assert str(file_of(str(FILE))) == target


def test_ctrl_c_shows_the_command_that_resumes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command includes the requested draft."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pull, "download", interrupted)
    assert main(["pull", str(FILE), "--draft", str(DRAFT)]) == 130
    message = capsys.readouterr().err
    assert message == f"stopped: `specchat pull {FILE} --draft {DRAFT}` downloads the rest\n"


def test_the_demo_pair_is_always_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is fetched for it."""
    assert main(["pull", "demo"]) == 0

    assert all(Path(line).is_file() for line in capsys.readouterr().out.splitlines())


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that one pair fits."""
    own_catalogue_path().write_text(TO_BEGIN_WITH)
    monkeypatch.setattr(pull, "find_machine", lambda: SMALL_MACHINE)


@pytest.mark.slow(keep=1)
@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("answer", ["\n", "y\n", "Yes\n"])
def test_a_pull_without_a_name_offers_what_suits_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    """The command explains its choice, asks, and downloads the pair."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert main(["pull"]) == 0
    out, message = capsys.readouterr()

    assert Path(out.strip()).read_bytes() == CONTENT
    assert "recommended for this machine: begin. Small enough.\n" in message
    assert "needs about 414 kB of memory and fits in memory" in message
    assert "pull begin (200 kB)? [Y/n]" in message


@pytest.mark.slow(keep=1)
@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("answer", ["n\n", "", "what?\n"])
def test_an_offer_can_be_turned_down(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
) -> None:
    """Nothing is asked of the hub then, nor where the answer ends early."""
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert main(["pull"]) == 1

    assert "nothing was fetched" in capsys.readouterr().err
    assert hub.seen == []


@pytest.mark.parametrize("words", [["pull"], ["rm", "one"]], ids=" ".join)
@pytest.mark.usefixtures("small_machine")
def test_ctrl_c_at_a_question_begins_a_new_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """The shell's prompt starts on a line of its own."""
    own_catalogue_path().write_text(OWN + TO_BEGIN_WITH)
    main(["pull", str(DRAFT)])

    def interrupted() -> str:
        raise KeyboardInterrupt

    terminal = Terminal()
    monkeypatch.setattr(terminal, "readline", interrupted)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert main(words) == 130
    assert capsys.readouterr().err.endswith(("[Y/n] \n", "[y/N] \n"))


@pytest.mark.slow
@pytest.mark.usefixtures("small_machine")
def test_an_offer_names_its_command_without_a_terminal(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script gets an error, and nothing happens."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert main(["pull"]) == 2
    out, message = capsys.readouterr()

    assert (out, hub.seen) == ("", [])
    assert "recommended for this machine: begin" in message
    assert message.endswith(
        "cannot ask for confirmation without a terminal: `specchat pull begin` pulls it\n"
    )


GPU = Device("CUDA0", "RTX 4090", "gpu", 23 * 2**30, 24 * 2**30)


def test_unknown_gpus_are_asked_for_and_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first thing a user does on a new machine gets the advice that its GPU deserves."""
    answer = ChildResult(BuildReport("", "", can_offload=True, backends=(), devices=(GPU,)))
    monkeypatch.setattr(pull, "ask_for_build", lambda: answer)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull"]) == 1

    assert "recommended for this machine: qwen3-32b" in capsys.readouterr().err
    assert find_machine().gpus == (replace(GPU, free=0),)


@pytest.mark.slow
def test_llama_cpp_itself_is_asked_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here it has no GPU, which is known from then on."""
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert find_machine().gpus is None
    main(["pull"])

    assert find_machine().gpus is not None


def test_a_build_that_cannot_be_asked_hinders_no_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The failure is reported and retried next time; the smallest pair is offered."""
    monkeypatch.setattr(pull, "find_machine", lambda: Machine(None))
    monkeypatch.setattr(pull, "ask_for_build", lambda: ChildResult(death="SIGILL"))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull"]) == 1

    message = capsys.readouterr().err
    assert "GPUs could not be detected: `specchat doctor` shows why" in message
    assert "recommended for this machine: qwen3-1.7b" in message
    assert "free memory is unknown" in message
    assert find_machine().gpus is None


@pytest.mark.slow
@pytest.mark.usefixtures("small_machine")
def test_an_installed_pair_needs_no_question(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that uses the pair is shown, without a question."""
    main(["pull", "begin"])
    capsys.readouterr()
    hub.seen.clear()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["pull"]) == 0

    message = capsys.readouterr().err.splitlines()
    assert message[-2:] == ["begin is already installed", "ready: specchat ask --pair begin"]
    assert hub.seen == []


@pytest.mark.slow
def test_a_machine_that_no_pair_fits_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error shows the machine's free memory."""
    monkeypatch.setattr(pull, "find_machine", lambda: SMALL_MACHINE)
    assert main(["pull"]) == 1

    message = capsys.readouterr().err
    assert "no pair fits this machine (1.00 MB of memory free)" in message


@table(
    ("words", "code", "message"),
    [
        (["pull", "nonsense"], 1, "there is no pair named 'nonsense': `specchat list`"),
        (["pull", "one", "--draft", "a/b/c.gguf"], 2, "one is a pair and has a draft"),
        (["pull", "a/b/../c.gguf"], 2, "invalid Hugging Face file name"),
        (
            ["pull", "gpt-oss-20b", "--draft", "a/b/c.gguf"],
            2,
            "gpt-oss-20b is a pair and has a draft",
        ),
        (["pull", "--draft", "a/b/c.gguf"], 2, "--draft requires a target: specchat pull"),
        (["pull", "org/model/none.gguf"], 1, "org/model has no file none.gguf at main"),
        (["pull", "--check"], 2, "--check requires a name"),
        (["pull", "--check", "demo"], 2, "does not come from the hub"),
        (["pull", "--check", "one"], 1, f"{FILE} is not installed: `specchat pull one` fetches it"),
        (["rm", "one"], 1, "nothing to delete for one: it is not installed"),
        (["rm", "demo", "--yes"], 2, "does not come from the hub"),
        (["ask", "hi", "--pair", "one"], 1, "`specchat pull one` fetches it"),
        (
            ["ask", "hi", "--target", str(FILE)],
            1,
            f"is not installed: `specchat pull {FILE}` fetches it",
        ),
    ],
)
def test_errors_are_one_line_with_their_exit_code(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str
) -> None:
    """Each kind of error has its exit code, and prints nothing on stdout."""
    assert main(words) == code
    out, err = capsys.readouterr()

    assert (out, err.count("\n")) == ("", 1)
    assert message in err


@pytest.mark.parametrize("command", ["pull NAME", "ask hi --pair NAME"])
def test_a_pair_whose_file_is_missing_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """A local file cannot be pulled: the error names the path and what to do."""
    file = tmp_path / "mine.gguf"
    file.touch()
    save_pair("mine", file, None)
    file.unlink()
    assert main(command.replace("NAME", "mine").split()) == 1
    out, message = capsys.readouterr()

    assert (out, message.count("\n")) == ("", 1)
    assert f"pair mine needs {file}, which is missing" in message
    assert "or remove the pair with `specchat rm mine`" in message


def test_what_was_pulled_can_be_checked_again(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no request; a wrong byte is found, and deleting the named file fixes it."""
    main(["pull", "one"])
    _, draft = map(Path, capsys.readouterr().out.splitlines())
    hub.seen.clear()
    assert main(["pull", "--check", "one"]) == 0
    assert capsys.readouterr().out == f"right: {FILE}\nright: {DRAFT}\n"

    draft.write_bytes(bytes([DRAFT_CONTENT[0] ^ 1]) + DRAFT_CONTENT[1:])
    assert main(["pull", "--check", "one"]) == 1
    out, message = capsys.readouterr()
    assert out == f"right: {FILE}\n"
    assert message == (
        f"wrong: {draft.resolve()} is not {DRAFT}: delete it, then `specchat pull one`"
        " fetches it again\n"
    )
    assert hub.seen == []
    draft.resolve().unlink()
    assert main(["pull", "one"]) == 0
    assert draft.read_bytes() == DRAFT_CONTENT


def test_a_pull_replaces_installed_files_that_are_wrong(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names and sizes are right, their bytes are not."""
    main(["pull", "one"])
    _, draft = map(Path, capsys.readouterr().out.splitlines())
    draft.write_bytes(bytes(len(DRAFT_CONTENT)))
    assert main(["pull", "one"]) == 0
    assert f"{draft.resolve()} is not {DRAFT}: deleting it" in capsys.readouterr().err
    assert draft.read_bytes() == DRAFT_CONTENT


def test_what_no_pin_is_known_of_is_checked_by_its_name_in_the_cache(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """As huggingface_hub leaves it, which keeps bytes under their sha256."""
    main(["pull", str(FILE)])
    pins_path().unlink()
    capsys.readouterr()
    assert main(["pull", "--check", str(FILE)]) == 0
    assert capsys.readouterr().out == f"right: {FILE}\n"


@pytest.mark.slow
def test_the_list_says_what_is_here(hub: HubServer, capsys: pytest.CaptureFixture[str]) -> None:
    """Not at all, the beginning of it, or all; sizes are exact once they are known."""
    assert (row(capsys, "one")["here"], row(capsys, "one")["bytes"]) == (False, None)
    hub.faults = [Fault("storage", status=403), Fault("storage", cut_body_at=9_000)]
    main(["pull", "one"])
    capsys.readouterr()
    assert (row(capsys, "one")["here"], row(capsys, "one")["bytes"]) == (False, 250_000)
    main(["pull", "one"])
    capsys.readouterr()
    assert (row(capsys, "one")["here"], row(capsys, "one")["bytes_here"]) == (True, 250_000)
    main(["list"])
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}

    assert lines["NAME"][:3] == ["NAME", "SIZE", "INSTALLED"]
    assert lines["one"] == ["one", "250", "kB", "yes", "fits", "in", "memory", "The", "first"]
    assert lines["two"] == ["two", "?", "no", "unknown", "The", "second"]
    assert lines["demo"][3] == "yes"


def test_the_list_names_files_that_belong_to_no_pair(capsys: pytest.CaptureFixture[str]) -> None:
    """Such files were pulled by name, so they can be used and deleted."""
    own_catalogue_path().unlink()
    main(["pull", str(FILE)])
    capsys.readouterr()

    found = row(capsys, str(FILE))
    assert (found["kind"], found["here"], found["bytes"]) == ("file", True, len(CONTENT))


@pytest.mark.slow
def test_what_another_pair_needs_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """The shared draft goes with the last pair that needs it, and so does its folder."""
    main(["pull", "one"])
    main(["pull", "two"])
    capsys.readouterr()
    assert main(["rm", "one", "--yes"]) == 0
    message = capsys.readouterr().err.splitlines()

    assert message == [
        f"keeping {DRAFT}, which pair two needs too",
        f"deleting {FILE}",
        "deleted 200 kB",
    ]
    assert (row(capsys, "one")["here"], row(capsys, "two")["here"]) == (False, True)
    assert len(blobs()) == 2
    assert main(["rm", "two", "--yes"]) == 0
    assert list(cache_root().glob("models--*")) == []


def test_without_a_terminal_nothing_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only why nothing is deleted; with one, what the question is about."""
    main(["pull", "one"])
    main(["pull", "two"])
    for terminal, code in ((io.StringIO("y\n"), 2), (Terminal("n\n"), 1)):
        monkeypatch.setattr(sys, "stdin", terminal)
        capsys.readouterr()
        assert main(["rm", "one"]) == code
        message = capsys.readouterr().err.splitlines()
        refused = ["specchat: cannot ask for confirmation without a terminal: --yes deletes"]
        listed = [f"keeping {DRAFT}, which pair two needs too", f"to delete: {FILE}"]
        wanted = refused if code == 2 else listed
        assert [line[: len(each)] for line, each in zip(message, wanted, strict=False)] == wanted
        assert len(message) == (1 if code == 2 else 3)
        assert row(capsys, "one")["here"]


def test_a_file_that_a_pair_needs_is_not_deleted_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The pair has to be deleted instead."""
    main(["pull", "one"])
    capsys.readouterr()

    assert main(["rm", str(DRAFT), "--yes"]) == 1
    assert f"keeping {DRAFT}, which pair one needs too" in capsys.readouterr().err


@pytest.mark.parametrize("user", ["pair", "setting", "tuned"])
def test_a_file_that_is_used_by_its_path_stays(
    capsys: pytest.CaptureFixture[str], user: str
) -> None:
    """By a saved pair, by the settings or by what tuning chose for another target."""
    main(["pull", "one"])
    target, draft = map(Path, capsys.readouterr().out.splitlines())
    if user == "pair":
        save_pair("mine", target, draft.resolve())  # the bytes themselves, behind the link
    elif user == "setting":
        settings_path().write_text(f'[model]\ntarget = "{target}"\ndraft = "{draft}"\n')
    else:
        other = own_catalogue_path().with_name("other.gguf")
        other.write_bytes(b"GGUF")
        keep_tuned(other, Tuned("model", str(draft), 1.5))
        keep_tuned(target, Tuned("model", str(draft), 1.5))  # which is deleted, and does not count
    code = main(["rm", "one", "--yes"])
    message = capsys.readouterr().err

    assert code == (0 if user == "tuned" else 1)
    assert target.is_file() == (user != "tuned")
    assert draft.read_bytes() == DRAFT_CONTENT
    words = {"pair": "pair mine", "setting": "model.draft in ", "tuned": "other.gguf, for which"}
    assert f"keeping {DRAFT}, which {words[user]}" in message


def test_bytes_that_another_file_shares_stay(tmp_path: Path) -> None:
    """By a link of another commit; so does a file outside the cache that a link leads to."""
    one = put_in_hub(cache_root(), FILE.repository, FILE.file, CONTENT, commit="1" * 40)
    two = put_in_hub(cache_root(), FILE.repository, "other.gguf", CONTENT, commit="2" * 40)
    outside = put(tmp_path / "outside.gguf", OTHER_CONTENT)
    link = put_in_hub(cache_root(), "org/other", "other.gguf")
    link.unlink()
    link.symlink_to(outside)
    (cache_root() / "models--org--model/refs/main").write_text("1" * 40)

    assert main(["rm", str(FILE), "--yes"]) == 0
    assert main(["rm", "org/other/other.gguf", "--yes"]) == 0
    assert (one.exists(), link.is_symlink()) == (False, False)
    assert (two.read_bytes(), outside.read_bytes()) == (CONTENT, OTHER_CONTENT)


def test_all_parts_that_another_program_fetched_are_deleted() -> None:
    """They have no pins; the first part names the others."""
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for name in names:
        put_in_hub(cache_root(), "org/big", name, name.encode())

    assert main(["rm", f"org/big/{names[0]}", "--yes"]) == 0
    assert list(cache_root().glob("models--*")) == []


def test_what_is_being_pulled_is_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    """A download holds its lock, as here."""
    main(["pull", str(FILE)])
    lock = lock_path(FILE, SHA256)
    with FileLock(lock):
        assert main(["rm", str(FILE), "--yes"]) == 1
        message = capsys.readouterr().err
        assert len(blobs()) == 1
    assert f"{FILE} is being pulled, so nothing was deleted: stop the download first" in message
    assert main(["rm", str(FILE), "--yes"]) == 0
    assert blobs() == []


def test_the_beginning_of_a_file_is_deleted_too(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who gives a download up gets the disk back, and the pin is forgotten."""
    hub.faults = [Fault("storage", cut_body_at=9_000), Fault("storage", status=403)]
    main(["pull", str(FILE)])
    capsys.readouterr()
    assert len(parts()) == 1
    hub.put(FILE.repository, FILE.file, OTHER_CONTENT)
    assert main(["rm", str(FILE), "--yes"]) == 0
    assert capsys.readouterr().err.endswith("deleted 9.00 kB\n")

    assert (parts(), list(cache_root().glob("models--*"))) == ([], [])
    assert main(["pull", str(FILE)]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == OTHER_CONTENT


def test_a_pin_alone_can_be_dropped(hub: HubServer, capsys: pytest.CaptureFixture[str]) -> None:
    """If a repository was rewritten, the pinned commit is gone."""
    keep_pin(FILE, Reference(FILE.repository, FILE.file, "9" * 40, 5, "0" * 64))
    assert main(["pull", str(FILE)]) == 1
    assert f"`specchat rm {FILE}` removes its pin" in capsys.readouterr().err
    assert main(["rm", str(FILE), "--yes"]) == 0

    assert main(["pull", str(FILE)]) == 0


class Terminal(io.StringIO):
    """Input that is typed."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_deleting_asks_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    """Files are deleted only if the user confirms."""
    main(["pull", str(FILE)])
    monkeypatch.setattr("sys.stdin", Terminal(answer))

    assert main(["rm", "one"]) == code
    assert "delete 200 kB from the cache" in capsys.readouterr().err
    assert (blobs() == []) == (code == 0)


def test_without_a_terminal_deleting_wants_a_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script must say it."""
    main(["pull", str(FILE)])
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    assert main(["rm", "one"]) == 2
    assert len(blobs()) == 1


def test_the_line_says_how_far_and_how_fast(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, rate and time left, counting only what came over the network."""
    clock = iter([0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr("specchat.hub.tally.time", SimpleNamespace(monotonic=clock.__next__))
    small = Reference("a/b", "small.gguf")
    with pull.progress_line() as update:
        update(DownloadProgress(small, 1_000_000, 1_000_000))
        update(DownloadProgress(FILE, 2_000_000, 9_000_000, 1_100_000))
        update(DownloadProgress(FILE, 2_000_000, 9_000_000, 1_100_000, "retrying in 4 s"))

    message = capsys.readouterr().err.splitlines()
    assert message[0] == (
        "3.00 MB of 10.0 MB, 30 %, 100 kB/s, 1 min 10 s left, small.gguf 100 %, model-Q4.gguf 22 %"
    )
    assert message[1].endswith("model-Q4.gguf retrying in 4 s")


def test_a_terminal_sees_one_line_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never wider than the terminal, at most ten times a second, and gone in the end."""
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    clock = iter([0.0, 0.05, 0.11, 0.2, 0.25])
    monkeypatch.setattr("specchat.hub.tally.time", SimpleNamespace(monotonic=clock.__next__))
    monkeypatch.setattr("shutil.get_terminal_size", lambda **_: os.terminal_size((20, 24)))
    with pull.progress_line() as update:
        for done in (1, 2, 3, 4):
            update(DownloadProgress(FILE, done, 9))

    lines = screen.getvalue().split("\r\x1b[K")
    assert lines == ["", "2 bytes of 9 bytes,", "4 bytes of 9 bytes,", ""]


@pytest.mark.slow
def test_listing_waits_for_nothing_heavy() -> None:
    """Neither huggingface_hub nor NumPy is needed to say what is here."""
    import subprocess

    script = (
        "import sys\nfrom specchat.cli import main\nassert main(['list']) == 0\n"
        "assert not {'numpy', 'huggingface_hub', 'httpx2', 'llama_cpp'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")

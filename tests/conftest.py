"""Fixtures of all tests: private folders, a network trap, and tiny models written once."""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from hub_server import HubServer
from scripts.support.tiny_gguf import HALF_RIGHT, write_model
from specchat.catalogue.catalogue_file import find_entry
from specchat.hub.cache import find_present
from specchat.hub.references import Reference
from specchat.system.private_files import FOLDERS

pytest_plugins = ("suite",)
WriteModel: TypeAlias = Callable[..., Path]
settings.register_profile(
    "specchat",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("specchat")  # on a busy machine an example may be slow

gc.set_threshold(100_000, 20, 100)  # at the usual 700, a fifth of the time of the tests of the chat
UNWANTED = {"NO_COLOR", "COLUMNS", "LINES"}
"""Variables that change what is drawn; readline sets the size for the processes it starts."""
ROOT = Path(__file__).parents[1]
TRAP_FOLDER = Path(__file__).parent / "network_trap"
IMAGE_LIBRARY = FOLDERS.user_cache_path / "mtmd" / version("llama-cpp-python")
"""Where the set-up has built what reads images, in the user's own cache."""
MODEL_FOLDER = ROOT / ".venv" / "setup" / "hub"
"""The cache of models that scripts/test --all pulls into."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of the real model by name where it is missing."""
    wanting = [item for item in items if "smollm2" in getattr(item, "fixturenames", ())]
    if wanting and _real_model() is None:
        for item in wanting:
            name = getattr(item, "originalname", item.name)
            reason = f"{name} needs the real model, which scripts/test --all fetches"
            item.add_marker(pytest.mark.skip(reason=reason))


def _real_model() -> Path | None:
    """Return the real model's path: the copy that SMOLLM2 names, or what `--all` pulls."""
    if given := os.environ.get("SMOLLM2"):
        if not Path(given).is_file():
            raise pytest.UsageError(f"SMOLLM2 names {given}, which is not a file: correct it")
        return Path(given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_CACHE", str(MODEL_FOLDER))
        target = find_entry("smollm2-135m").target
        return find_present(target) if isinstance(target, Reference) else None


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the path of the real model; tests that use this are skipped where it is missing."""
    path = _real_model()
    if path is None:  # a test that asks for it by name only when it runs
        pytest.skip("needs the real model, which scripts/test --all fetches")
    return path


@pytest.fixture(scope="session")
def image_library(_own_folders: None) -> None:
    """Skip what needs llama.cpp's library for images where it is missing."""
    from specchat.llama import mtmd_library

    if mtmd_library.path() is None:
        pytest.skip("needs what reads images, which scripts/test builds")


CURRENT_TEST = "PYTEST_CURRENT_TEST"
"""Set by pytest, in each phase of a test."""


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep all tests, and the processes they start, out of the user's folders and settings."""
    home = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(home)
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(home / name.lower())
    if IMAGE_LIBRARY.is_dir():
        os.environ.setdefault("MTMD_CPP_LIB", str(IMAGE_LIBRARY))
    for name in [name for name in os.environ if name in UNWANTED or name.startswith("SPECCHAT_")]:
        del os.environ[name]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # as for a shell's background jobs; processes that tests interrupt would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_hub(_own_folders: None) -> None:
    """Import the hub's client before any test sets an endpoint, which it reads only once."""
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE"):
        os.environ.pop(name, None)
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    importlib.import_module("huggingface_hub.file_download")


@pytest.fixture(autouse=True)
def _same_environment(_own_folders: None) -> Iterator[None]:
    """Undo what a test changes in the environment, or a command in its process, as `--offline`."""
    before = {name: text for name, text in os.environ.items() if name != CURRENT_TEST}
    yield
    for name in [name for name in os.environ if name not in before and name != CURRENT_TEST]:
        del os.environ[name]
    os.environ.update(before)


class NetworkTrap:
    """The file where processes record the hosts they tried to reach beyond this machine."""

    def __init__(self, path: Path) -> None:
        """Store the path of the file."""
        self._path = path

    def take(self) -> list[str]:
        """Return the attempts since the last call, a line each."""
        try:
            tried = self._path.read_text("utf-8").splitlines()
        except FileNotFoundError:
            return []
        self._path.unlink()
        return tried


@pytest.fixture(scope="session")
def network_trap(tmp_path_factory: pytest.TempPathFactory) -> NetworkTrap:
    """Trap this process and every Python process it starts."""
    path = tmp_path_factory.mktemp("trap") / "tried"
    os.environ["NETWORK_TRAP"] = str(path)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TRAP_FOLDER), before]))
    runpy.run_path(str(TRAP_FOLDER / "sitecustomize.py"))
    return NetworkTrap(path)


@pytest.fixture(autouse=True)
def _nothing_leaves_the_machine(network_trap: NetworkTrap) -> Iterator[None]:
    """Fail any test that opens a socket or looks up a name beyond loopback."""
    yield
    if tried := network_trap.take():
        pytest.fail("beyond this machine: " + "; ".join(tried))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> WriteModel:
    """Return a writer of tiny models; the same arguments give the same file.

    `kind` is "right" (the target itself), "half right" or "wrong" (another model altogether).
    """
    folder = tmp_path_factory.mktemp("models")
    written: dict[str, Path] = {}

    def write(architecture: str, kind: str = "right", **options: Any) -> Path:
        options.setdefault("context_length", 2048)
        if kind == "half right":
            options["perturb"] = HALF_RIGHT[architecture]
        elif kind == "wrong":
            options["seed"] = 5
        name = f"{architecture} {sorted(options.items())}"
        if name not in written:
            path = folder / str(len(written)) / f"{architecture}-{len(written)}.gguf"
            path.parent.mkdir()  # a model beside it could be taken for its draft
            written[name] = write_model(path, architecture, **options)
        return written[name]

    return write


@pytest.fixture(scope="session")
def demo_state(network_trap: NetworkTrap, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of state to copy, where the demo pair's speed on one thread is measured.

    That takes seconds of a processor, so one of the workers does it for all.
    """
    of_worker = tmp_path_factory.getbasetemp()
    folder = (of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker) / "demo state"
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            words = ("ask", "hi", "--threads", "1", "--max-tokens", "1")
            subprocess.run(
                [sys.executable, "-m", "specchat", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, cwd=ROOT,
                env={**os.environ, "XDG_STATE_HOME": str(folder)},
            )  # fmt: skip
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Return a hub on this machine, with the test's own cache and data folder."""
    for name in (
        "HF_ENDPOINT",
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        yield server

"""How specchat was installed is found by the files beside it; so is the command to update it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from local_folders import put
from specchat.doctor import install_method
from specchat.doctor.install_method import find_installation

PIP = f"{shlex.quote(sys.executable)} -m pip install --upgrade"


class Record:
    """A package's metadata with the record of what was installed."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        """Return the record; None for a package from an index."""
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


@pytest.fixture(autouse=True)
def _no_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install_method, "CONTAINER_MARKS", ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.parametrize(
    ("prefix", "mark", "method", "command"),
    [
        (".local/share/pipx/venvs/specchat", "pipx_metadata.json", "pipx", "pipx upgrade specchat"),
        (".cache/pipx/1f2e", "", "pipx run", "pipx run --no-cache specchat"),
        ("share/uv/tools/specchat", "uv-receipt.toml", "uv tool", "uv tool upgrade specchat"),
        (".cache/uv/archive-v0/x1", "", "uvx", "uvx specchat@latest"),
        ("Cellar/specchat/0.1.0/libexec", "", "Homebrew", "brew upgrade specchat"),
    ],
)
def test_each_tool_leaves_its_mark(
    tmp_path: Path, prefix: str, mark: str, method: str, command: str
) -> None:
    """A file in the environment, or the folder that it is in."""
    folder = tmp_path / prefix
    folder.mkdir(parents=True)
    if mark:
        put(folder / mark, b"{}")
    found = find_installation(folder, tmp_path / "site-packages", {})
    assert (found.method, found.commands, found.folder) == (method, (command,), folder)


def test_a_clone_is_pulled(tmp_path: Path) -> None:
    """Its script sets up what has changed; its path may have spaces."""
    root = tmp_path / "my clone"
    put(root / "scripts" / "specchat")
    (root / ".venv").mkdir()
    found = find_installation(root / ".venv", root, {})
    assert (found.method, found.folder) == ("a clone", root)
    assert found.commands[0] == f"git -C '{root}' pull"
    assert found.commands[1].startswith("# ")


def test_nix_is_known_by_its_store() -> None:
    """Its files cannot be changed."""
    found = find_installation(Path("/usr"), Path("/nix/store/abc-specchat/lib"), {})
    assert (found.method, found.commands) == ("Nix", ("nix profile upgrade specchat",))


@pytest.mark.parametrize(
    ("origin", "method", "commands"),
    [
        (None, "pip", (f"{PIP} specchat",)),
        (
            {"url": "file:///home/me/spec%20chat", "dir_info": {"editable": True}},
            "an editable folder",
            ("git -C '/home/me/spec chat' pull", f"{PIP} -e '/home/me/spec chat'"),
        ),
        (
            {"url": "file:///home/me/specchat", "dir_info": {}},
            "a folder",
            ("git -C /home/me/specchat pull", f"{PIP} /home/me/specchat"),
        ),
        (
            {"url": "https://host/a.git", "vcs_info": {"vcs": "git", "commit_id": "f00"}},
            "a repository",
            (f"{PIP} --force-reinstall --no-deps git+https://host/a.git",),
        ),
        (
            {"url": "file:///tmp/specchat-0.1.0-py3-none-any.whl", "archive_info": {}},
            "a file",
            (f"# download a newer file, then: {PIP} FILE",),
        ),
    ],
)
def test_pip_records_where_a_package_came_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    origin: dict[str, Any] | None,
    method: str,
    commands: tuple[str, ...],
) -> None:
    """An index, a folder, a repository or a file."""
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Record(origin))
    found = find_installation(tmp_path, tmp_path / "site-packages", {})
    assert (found.method, found.commands) == (method, commands)


def test_without_pip_it_is_uvs_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`uv venv` makes environments without pip."""
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Record(None))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = find_installation(tmp_path, tmp_path / "site-packages", {})
    python = shlex.quote(sys.executable)
    assert found.method == "uv pip"
    assert found.commands == (f"uv pip install --python {python} --upgrade specchat",)


def test_an_image_is_replaced_and_a_users_environment_in_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed in a container is lost with it, except in a home folder."""
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Record(None))
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    image = find_installation(Path("/opt/venv"), tmp_path / "site-packages", inside)
    own = find_installation(tmp_path / "venv", tmp_path / "site-packages", inside)
    assert (image.method, own.method) == ("a container's image", "pip")
    by_hand = "# pull a newer image; until then, in this container:"
    assert image.commands == (by_hand, f"{PIP} specchat")


def test_this_copy_is_found() -> None:
    """Whatever it is, with a command."""
    found = find_installation()
    assert found.commands
    assert found.folder.exists()

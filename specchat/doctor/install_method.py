"""How this copy of specchat was installed, and the commands that update it."""

import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from specchat.doctor.repairs import quoted
from specchat.system.clone import ROOT

NAME = "specchat"
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


@dataclass(frozen=True, slots=True)
class Installation:
    """How specchat was installed, and where; the commands that update it, in order."""

    method: str
    folder: Path
    commands: tuple[str, ...]
    """In the syntax of the system's shell; a line that begins with # says what to do by hand."""

    def __str__(self) -> str:
        """Return the way and the folder, for a message."""
        return f"{self.method}, in {self.folder}"


def find_installation(
    prefix: Path | None = None, root: Path = ROOT, environ: Mapping[str, str] = os.environ
) -> Installation:
    """Return how the running copy was installed, by the files beside it; asks no network."""
    prefix = Path(sys.prefix) if prefix is None else prefix
    parts = prefix.parts
    if (root / "scripts" / "specchat").is_file() and prefix.resolve() == (root / ".venv").resolve():
        pull = f"git -C {quoted(str(root))} pull"
        again = "# the next call sets up what has changed"
        return Installation("a clone", root, (pull, again))
    if root.is_relative_to("/nix/store"):
        return Installation("Nix", root, ("nix profile upgrade specchat",))
    if "Cellar" in parts:
        return Installation("Homebrew", prefix, ("brew upgrade specchat",))
    if (prefix / "pipx_metadata.json").is_file():
        return Installation("pipx", prefix, ("pipx upgrade specchat",))
    if (prefix / "uv-receipt.toml").is_file():
        return Installation("uv tool", prefix, ("uv tool upgrade specchat",))
    if any(part.startswith(("archive-v", "environments-v")) for part in parts):
        return Installation("uvx", prefix, ("uvx specchat@latest",))
    if "pipx" in parts and "venvs" not in parts:
        return Installation("pipx run", prefix, ("pipx run --no-cache specchat",))
    return _of_pip(prefix, _origin(), is_container=_is_container(prefix, environ))


def _of_pip(prefix: Path, origin: Mapping[str, Any], *, is_container: bool) -> Installation:
    """Return how pip or uv installed it into an environment, by the record that they leave."""
    url, install = str(origin.get("url", "")), _install_command()
    is_folder = isinstance(origin.get("dir_info"), dict)
    folder = Path(unquote(urlsplit(url).path))
    pull, name = f"git -C {quoted(str(folder))} pull", quoted(str(folder))
    if is_folder and origin["dir_info"].get("editable"):
        return Installation("an editable folder", folder, (pull, f"{install} -e {name}"))
    if is_container:
        by_hand = "# pull a newer image; until then, in this container:"
        return Installation("a container's image", prefix, (by_hand, f"{install} {NAME}"))
    if isinstance(vcs := origin.get("vcs_info"), dict):
        source = quoted(f"{vcs.get('vcs', 'git')}+{url}")
        again = f"{install} --force-reinstall --no-deps {source}"
        return Installation("a repository", prefix, (again,))
    if is_folder:
        return Installation("a folder", folder, (pull, f"{install} {name}"))
    if url:
        by_hand = f"# download a newer file, then: {install} FILE"
        return Installation("a file", prefix, (by_hand,))
    return Installation(
        "uv pip" if install.startswith("uv") else "pip", prefix, (f"{install} {NAME}",)
    )


def _install_command() -> str:
    """Return the command that upgrades a package in this environment, without its name."""
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {quoted(python)} --upgrade"
    call = "& " if sys.platform == "win32" else ""
    return f"{call}{quoted(python)} -m pip install --upgrade"


def _origin() -> dict[str, Any]:
    """Return pip's record of an installation from elsewhere than an index; empty without one."""
    try:
        text = importlib.metadata.distribution(NAME).read_text("direct_url.json")
        record = json.loads(text or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_container(prefix: Path, environ: Mapping[str, str]) -> bool:
    """Return True in an image's own environment; one in a home folder is a user's."""
    home = environ.get("HOME", "")
    is_users = bool(home) and prefix.is_relative_to(home)
    is_inside = "KUBERNETES_SERVICE_HOST" in environ or any(map(Path.exists, CONTAINER_MARKS))
    return is_inside and not is_users

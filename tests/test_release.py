"""The wheel and the source distribution: built, installed into a clean environment, and run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import specchat
from specchat.docs import topics

ROOT = Path(__file__).parents[1]
NEEDED = ("hatchling", "pip")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not installed"),
]
MOST_SECONDS = 240.0


def run(*command: str | Path, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command prints; the test fails with its errors."""
    words = [str(each) for each in command]
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheel and the source distribution, and a wheel from the latter."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    again = folder / "again"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again, folder=unpacked)
    return {"wheel": wheel, "source": source, "wheel of the source": next(again.glob("*.whl"))}


def test_the_source_makes_the_same_wheel(distributions: dict[str, Path]) -> None:
    """File by file."""
    found = []
    for name in ("wheel", "wheel of the source"):
        with zipfile.ZipFile(distributions[name]) as archive:
            found.append({each.filename: each.CRC for each in archive.infolist()})
    assert found[0] == found[1]


def test_the_wheel_has_all_files_of_the_package(distributions: dict[str, Path]) -> None:
    """Styles, documentation, the demo pair, the catalogue and the licence among them."""
    listed = run("git", "ls-files", "specchat", folder=ROOT).split()
    with zipfile.ZipFile(distributions["wheel"]) as archive:
        names = set(archive.namelist())
        (metadata,) = (each for each in names if each.endswith("METADATA"))
        about = archive.read(metadata).decode()
    needed = {*listed, "specchat/models.toml", "specchat/py.typed"}
    assert needed - names == set()
    assert any(each.endswith("LICENSE") for each in names)
    assert not [each for each in names if not each.startswith("specchat")]
    assert f"\nVersion: {specchat.__version__}\n" in about


@pytest.fixture(scope="module")
def installed(
    distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """Install the wheel into an environment that borrows its dependencies; return its commands."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "environment", with_pip=False)
    scripts = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    python = next(scripts.glob("python*"))
    install = ("install", "--no-deps", "--no-index", "--quiet", distributions["wheel"])
    run(sys.executable, "-m", "pip", "--python", python, *install, folder=folder)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_"))
    }
    environment["HOME"] = environment["USERPROFILE"] = str(folder)
    site = Path(run(python, "-c", where, folder=folder, environment=environment).strip())
    borrowed = sysconfig.get_path("purelib")
    (site / "borrowed.pth").write_text(borrowed + "\n", "utf-8")
    return scripts, environment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--version"], re.escape(f"specchat {specchat.__version__}")),
        (["list", "--offline"], r"demo +12\.5 MB +yes"),
        (["help"], "|".join(topics())),
        (["help", "chat"], "# Using the chat"),
        (["completions", "bash"], "complete -o bashdefault -F _shtab_specchat specchat"),
        (["ask", "--offline", "--temperature", "0", "What is specchat?"], r"terminal chat"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_installed_command_works(
    installed: tuple[Path, dict[str, str]], words: list[str], wanted: str, tmp_path: Path
) -> None:
    """The command on the PATH, with the package's own files and no repository around it."""
    scripts, environment = installed
    shown = run(scripts / "specchat", *words, folder=tmp_path, environment=environment)
    assert re.search(wanted, shown)


def test_the_installed_package_is_its_own(
    installed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    """What is imported is the installed package, with its style sheets, and not the repository."""
    scripts, environment = installed
    code = (
        "import specchat.tui.app as app; from pathlib import Path; place = Path(app.__file__);"
        " names = app.ChatApp.CSS_PATH, 'dialogs.tcss';"
        " assert all(place.with_name(name).is_file() for name in names); print(place)"
    )
    python = next(scripts.glob("python*"))
    shown = run(python, "-P", "-c", code, folder=tmp_path, environment=environment)
    assert Path(shown.strip()).is_relative_to(scripts.parent)

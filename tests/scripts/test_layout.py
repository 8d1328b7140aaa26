"""Where scripts are and what they import: they and the tests meet in scripts/support only."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPTS, TESTS = ROOT / "scripts", ROOT / "tests"
FOLDERS = ("measure", "check", "lab", "packaging")
SHARED = ("scripts.support", "scripts.setup_env")
DEMO = SCRIPTS / "lab" / "demo"
"""One program of several modules."""


def scripts() -> list[Path]:
    """Return the scripts that are run by hand."""
    return [path for folder in FOLDERS for path in (SCRIPTS / folder).rglob("*.py")]


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_script_imports_a_test_or_another_script() -> None:
    """What several need is a module in scripts/support."""
    files = (path.relative_to(TESTS).with_suffix("") for path in TESTS.rglob("*.py"))
    of_tests = tuple(".".join(path.parts) for path in files)
    strangers = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SCRIPTS.rglob("*.py")
        for name in imported(path)
        if name.startswith(of_tests)
        or (
            name.startswith("scripts.")
            and not name.startswith(SHARED)
            and not (path.is_relative_to(DEMO) and name.startswith("scripts.lab.demo."))
        )
    ]
    assert strangers == []


def test_no_test_imports_a_script() -> None:
    """Tests know the modules that scripts share, and the set-up, which they test."""
    assert [
        f"{path.relative_to(ROOT)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in imported(path)
        if name.startswith("scripts.") and not name.startswith(SHARED)
    ] == []


def test_every_script_is_listed() -> None:
    """scripts/README.md has a line for each, and the demo's modules are one program."""
    page = (SCRIPTS / "README.md").read_text("utf-8")
    for path in scripts():
        is_program = 'if __name__ == "__main__":' in path.read_text("utf-8")
        assert is_program or path.is_relative_to(DEMO), f"{path} is a module: scripts/support"
        folder = next(each for each in FOLDERS if path.is_relative_to(SCRIPTS / each))
        name = path.relative_to(SCRIPTS / folder).as_posix()
        assert not is_program or f"`{name}`" in page, f"{path} is not listed"

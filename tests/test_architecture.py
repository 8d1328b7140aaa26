"""Rules the layer contracts cannot see: what imports load, what files say and where they are."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tables import table

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "specchat"
TOP_LEVEL = {
    "pyproject.toml",
    "specchat",
    "models.toml",
    "tests",
    "scripts",
    "README.md",
    "LICENSE",
}
HEAVY = (
    "llama_cpp", "textual", "numpy", "huggingface_hub", "jinja2", "tomllib", "tomlkit",
    "starlette", "uvicorn", "prometheus_client", "llguidance", "jsonschema_rs",
)  # fmt: skip
INDEX_HOSTS = ("pypi" + ".org", "python" + "hosted.org", "npmjs" + ".org", "deb." + "debian.org")
BUILD_PATHS = ("/" + "work/", "/" + "tmp/lab", "/" + "opt/pypi", "/" + "root/", "/" + "opt/wheels")
NOT_NAMES = {"__init__", "__main__"}
NO_TEXT = {".gguf", ".png", ".ico"}


@cache
def repository_files() -> tuple[Path, ...]:
    """Return all files that are committed or not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git work tree")
    names = done.stdout.decode().split("\0")
    return tuple(ROOT / name for name in names if name and (ROOT / name).is_file())


def python_files(*folders: str) -> list[Path]:
    """Return the Python files in folders of the repository."""
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def modules_loaded_by(code: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after running some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(['', *sys.modules]))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.splitlines())


@table("heavy", HEAVY)
def test_importing_specchat_loads_nothing_heavy(heavy: str) -> None:
    """`import specchat` is cheap; the engine is imported when it is used."""
    assert heavy not in modules_loaded_by("import specchat")


@table(
    "arguments",
    [
        ["--help"],
        ["ask", "--help"],
        ["config", "edit", "--help"],
        ["serve", "--help"],
        ["--version"],
    ],
    ids=" ".join,
)
def test_asking_for_help_loads_nothing_heavy(arguments: list[str]) -> None:
    """A script that asks for help waits for neither llama.cpp nor Textual."""
    code = (
        "from specchat.cli import main\n"
        f"try: main({arguments!r})\n"
        "except SystemExit as end: assert end.code in (0, None)"
    )
    assert modules_loaded_by(code).isdisjoint(HEAVY)


@table("words", [["list"], ["list", "--json"], ["show", "demo"]], ids=" ".join)
def test_facts_load_nothing_that_takes_time(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need neither llama.cpp nor NumPy nor the hub's client, unless a speed is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code = f"from specchat.cli import main\nassert main({words!r}) == 0"
    assert modules_loaded_by(code).isdisjoint(set(HEAVY) - {"tomllib"})


def test_the_chat_starts_without_what_only_answers_need() -> None:
    """Neither Markdown nor a client of the web nor a server is loaded before the first frame."""
    loaded = modules_loaded_by("import specchat.cli.chat, specchat.tui.app")
    assert loaded.isdisjoint({"markdown_it", "rich.markdown", "urllib.request", "starlette"})


def test_the_engine_is_imported_when_used() -> None:
    """`specchat.Engine` is found lazily, and a wrong name is an AttributeError."""
    import specchat

    assert specchat.Engine.__module__.startswith("specchat.engine")
    with pytest.raises(AttributeError, match="no_such_name"):
        specchat.no_such_name  # noqa: B018 -- looking it up is the test


def test_base_names_are_unique() -> None:
    """A file's name says what is in it, and no other file of the package has the same name."""
    counts = Counter(path.stem for path in python_files("specchat") if path.stem not in NOT_NAMES)

    assert [name for name, count in counts.items() if count > 1] == []


def _listed(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return None


@table(
    "path",
    [
        path
        for path in python_files("specchat")
        if "__all__" in (text := path.read_text("utf-8")) and _listed(ast.parse(text))
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_all_names_everything_public(path: Path) -> None:
    """Where a module has `__all__`, it lists what it offers, and nothing else."""
    tree = ast.parse(path.read_text("utf-8"))
    listed = _listed(tree) or set()
    assert listed >= _defined(tree), f"not in __all__: {sorted(_defined(tree) - listed)}"
    assert listed <= _bound(tree), f"in __all__ only: {sorted(listed - _bound(tree))}"


def test_packages_list_what_they_offer() -> None:
    """The `__init__` of a package defines nothing public that its `__all__` does not list."""
    trees = {path: ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("__init__.py")}
    assert [path for path, tree in trees.items() if _defined(tree) and not _listed(tree)] == []


def test_no_module_imports_what_another_keeps_to_itself() -> None:
    """A name with an underscore is used in its own module only."""
    assert [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in python_files("specchat")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specchat")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ] == []


def _defined(tree: ast.Module) -> set[str]:
    """Return the public functions and classes a module defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    names = {node.name for node in tree.body if isinstance(node, kinds)}
    return {name for name in names if not name.startswith("_")}


def _bound(tree: ast.Module) -> set[str]:
    """Return every name a module binds at its top level, under TYPE_CHECKING too."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    return bound


@table("path", python_files("specchat"), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_has_a_docstring(path: Path) -> None:
    """The docstring is the first thing in a module."""
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


def test_every_test_states_a_behaviour() -> None:
    """A test's name is a sentence and its docstring says what is promised."""
    silent = [
        f"{path.relative_to(ROOT)}:{node.name}"
        for path in python_files("tests")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


@pytest.mark.parametrize("forbidden", INDEX_HOSTS + BUILD_PATHS)
def test_no_file_names_a_package_index_or_a_build_machine(forbidden: str) -> None:
    """The user's pip decides where packages come from, and paths of a build are of no use."""
    word = re.compile(rf"(?<![\w.]){re.escape(forbidden)}")
    naming = [
        str(path.relative_to(ROOT))
        for path in repository_files()
        if path.suffix not in NO_TEXT and word.search(path.read_text("utf-8", errors="replace"))
    ]
    assert naming == []


def test_the_top_level_holds_what_was_agreed() -> None:
    """The top level of the repository has only the agreed files and folders."""
    names = {path.relative_to(ROOT).parts[0] for path in repository_files()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_the_map_of_the_code_has_every_room_of_the_layers_in_their_order() -> None:
    """speculation.md lists what is in the package, and the contract of pyproject.toml ranks it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]
    assert contract["containers"] == ["specchat"]
    layers = [name for layer in contract["layers"] for name in re.findall(r"\w+", layer)]
    page = (PACKAGE / "docs" / "speculation.md").read_text("utf-8")
    mapped = re.findall(r"^specchat/(\w+)(?:\.py)? ", page, re.MULTILINE)
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms |= {path.stem for path in PACKAGE.glob("*.py")} - NOT_NAMES

    assert mapped == layers
    assert set(layers) == rooms


DRAFTER_FILES = {"drafter_registry.py", "drafting/draft_model.py", "drafting/suffix.py"}
"""The files that may name drafters: the descriptors and the drafters themselves."""
UNMISTAKABLE = {"suffix", "suffix+model"}
AMBIGUOUS = {"model", "draft", "none", "auto", "target"}
"""Names of drafters, choices and origins that are also words for other things."""


def _sides(node: ast.AST) -> tuple[str, list[ast.expr]]:
    """Return what is compared or set, as source, and the values it is compared with or set to."""
    match node:
        case ast.Compare(left=left, comparators=values):
            return ast.unparse(left), values
        case ast.keyword(arg=str(name), value=value):
            return name, [value]
        case ast.Assign(targets=targets, value=value):
            return " ".join(map(ast.unparse, targets)), [value]
        case ast.AnnAssign(target=target, annotation=annotation, value=value) if value:
            return f"{ast.unparse(target)} {ast.unparse(annotation)}", [value]
    return "", []


def _words(node: ast.expr) -> Iterator[object]:
    """Yield the constants of an expression: it alone, or those of a display."""
    match node:
        case ast.Constant(value=value):
            yield value
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            yield from (word for part in parts for word in _words(part))
        case ast.Dict(keys=keys, values=values):
            yield from (word for part in [*keys, *values] if part for word in _words(part))


def _names_a_drafter(node: ast.AST) -> bool:
    """Whether a comparison, argument or assignment puts a drafter's name into code."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value in UNMISTAKABLE
    about, values = _sides(node)
    words = {word for value in values for word in _words(value)}
    return bool(words & AMBIGUOUS and re.search("drafter|origin", about, re.IGNORECASE))


def test_only_descriptors_and_their_own_files_name_drafters() -> None:
    """Everything else asks the drafter registry, so that a new drafter needs no other change."""
    naming = [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        for path in python_files("specchat")
        if str(path.relative_to(PACKAGE)) not in DRAFTER_FILES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if _names_a_drafter(node)
    ]
    assert naming == []


def tui_classes() -> list[type]:
    """Return all classes that the chat's modules define, nested ones too."""
    modules = [
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for path in python_files("specchat/tui")
    ]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    found += [each for kind in found for each in vars(kind).values() if isinstance(each, type)]
    return [each for each in dict.fromkeys(found) if _is_ours(each)]


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("specchat.tui")


def test_the_chat_is_composed_and_not_inherited() -> None:
    """A class of the chat inherits from one of our own at most, and that one from none."""
    chains = {each.__qualname__: list(filter(_is_ours, each.__mro__)) for each in tui_classes()}
    assert len(chains) > 40
    assert {name for name, chain in chains.items() if len(chain) > 2} == set()


PRIVATE_TEXTUAL = {
    "_handle_exception": "App: no public hook keeps a traceback off the terminal",
}
"""Private names of Textual that the chat overrides, and why; they are why its release is pinned."""


def test_the_chat_uses_no_private_name_of_textual_but_these() -> None:
    """Our classes neither call, override nor hide any other private name."""
    used = {name for kind in tui_classes() for name in _private_names_used(kind)}
    assert used == set(PRIVATE_TEXTUAL)


def _private_names_used(kind: type) -> set[str]:
    """Return the private names of Textual classes that a class's own code uses."""
    bases = [each for each in kind.__mro__ if each.__module__.startswith("textual")]
    theirs = {name for base in bases for name in vars(base)} | {
        name for base in bases for name in _attributes(base)
    }
    mine = _attributes(kind) | set(vars(kind)) if bases else set()
    return {name for name in mine & theirs if re.fullmatch(r"_[a-z]\w*", name)} - GENERATED


GENERATED = {
    *("_decorated_handlers", "_css_type_name", "_css_type_names", "_inherit_css"),
    *(
        "_inherit_bindings",
        "_inherit_component_classes",
        "_merged_bindings",
        "_reactives",
        "_computes",
    ),
    *("_abc_impl", "_is_protocol", "_default_virtual_size"),
}
"""Names that Textual itself writes into each class."""


@cache
def _attributes(kind: type) -> set[str]:
    """Return the attributes that a class's own methods name on any object."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}

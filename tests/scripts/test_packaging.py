"""What a release is made of: the wheel of llama.cpp, its index, the workflow and the metadata."""

from __future__ import annotations

import hashlib
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml  # type: ignore[import-untyped]  # comes with huggingface-hub

from scripts.setup_env import exact_kernels, portable, unused_parts
from scripts.setup_env.recipes import build_environment
from scripts.setup_env.running import SetUpFailed
from tables import table

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "scripts" / "packaging"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
WITH_AMX = f"{portable.WITH_AMX}SSE42 AVX AMX_TILE AMX_INT8)\n"
WITHOUT_AMX = "            ggml_add_cpu_backend_variant(zen4           SSE42 AVX)\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a source of llama-cpp-python, as far as it is changed."""
    texts = {
        exact_kernels.SOURCE: "\nbool llamafile_sgemm(int n) {\n    if (n < 2)\n        return;\n}",
        portable.VARIANTS: WITHOUT_AMX + WITH_AMX,
        unused_parts.PROJECT: unused_parts.COMMON,
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_no_variant_with_amx_is_built(source: Path) -> None:
    """Some machines report AMX in vain; all other variants stay, with the switch of kernels."""
    portable.prepare(source)

    assert (source / portable.VARIANTS).read_text() == WITHOUT_AMX
    assert "(LLAMA_BUILD_COMMON OFF CACHE" in (source / unused_parts.PROJECT).read_text()
    assert "specchat_min_columns" in (source / exact_kernels.SOURCE).read_text()


@pytest.mark.parametrize(
    "name", [exact_kernels.SOURCE, portable.VARIANTS, unused_parts.PROJECT], ids=str
)
def test_a_release_that_the_changes_do_not_fit_is_refused(source: Path, name: Path) -> None:
    """A wheel with AMX, or without the switch, would be published otherwise."""
    (source / name).write_text("other")
    with pytest.raises(SetUpFailed, match="not written for"):
        portable.prepare(source)


@table("name", sorted(portable.BACKENDS))
def test_every_wheel_loads_its_backends_and_knows_no_native_instruction(name: str) -> None:
    """With the libraries beside each other, and the RPC backend of workers."""
    arguments = build_environment(portable.ANY_CPU, portable.BACKENDS[name], 1, {})["CMAKE_ARGS"]

    assert {"-DGGML_NATIVE=OFF", "-DGGML_BACKEND_DL=ON", "-DGGML_RPC=ON"} <= {*arguments.split()}
    assert "-DGGML_NATIVE=ON" not in arguments
    assert "CMAKE_INSTALL_RPATH=$ORIGIN" in arguments
    assert ("GGML_CUDA" in arguments) is (name == "cuda")
    assert ("GGML_VULKAN" in arguments) is (name == "vulkan")


def test_only_the_package_stays_in_the_wheel(tmp_path: Path) -> None:
    """Its list of files is right again: an installer compares each with its hash."""
    wheel = tmp_path / "llama_cpp_python-1-py3-none-any.whl"
    files = {
        "lib/libllama.so": b"a copy",
        "include/llama.h": b"a header",
        "llama_cpp/lib/libllama.so": b"llama",
        "llama_cpp/lib/libggml-cpu-zen4.so": b"zen4",
        "llama_cpp_python-1.dist-info/METADATA": b"Name: llama_cpp_python\nVersion: 1\n",
        "llama_cpp_python-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        "llama_cpp_python-1.dist-info/RECORD": b"stale",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    smaller = portable.keep_package_only(wheel, tmp_path / "out")

    assert portable.libraries_of(smaller) == ["ggml-cpu-zen4", "llama"]
    install = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet")
    target = ("--target", str(tmp_path / "site"), str(smaller))
    done = subprocess.run([*install, *target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = (tmp_path / "site" / "llama_cpp_python-1.dist-info" / "RECORD").read_text()
    assert "llama_cpp/lib/libggml-cpu-zen4.so,sha256=" in record
    assert not (tmp_path / "site" / "lib").exists()


class Links(HTMLParser):
    """Collects the addresses of a page's links."""

    def __init__(self, page: Path) -> None:
        """Read a page."""
        super().__init__()
        self.found: list[str] = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where a link leads."""
        self.found += [text or "" for name, text in attrs if (tag, name) == ("a", "href")]


def write_index(*words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the script; return its exit code."""
    script = PACKAGING / "write_index.py"
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    return int(str(end.value.code))


def test_the_index_leads_from_its_top_to_every_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each link is a file or folder of the index, and wheels have their hash."""
    for backend in ("cpu", "vulkan"):
        (tmp_path / backend).mkdir()
        wheel = tmp_path / backend / "llama_cpp_python-0.3.36+a-py3-none-any.whl"
        wheel.write_bytes(backend.encode())
    out = tmp_path / "out"
    folders = (str(tmp_path / "cpu"), str(tmp_path / "vulkan"))
    assert write_index(*folders, "--out", str(out), monkeypatch=monkeypatch) == 0

    assert Links(out / "index.html").found == ["cpu/", "vulkan/"]
    for backend in ("cpu", "vulkan"):
        assert Links(out / backend / "index.html").found == ["llama-cpp-python/"]
        place = out / backend / "llama-cpp-python"
        (link,) = Links(place / "index.html").found
        name, hash_of = urldefrag(link)
        found = place / unquote(name)
        assert found.read_bytes() == backend.encode()
        assert hash_of == f"sha256={hashlib.sha256(backend.encode()).hexdigest()}"


def test_an_index_of_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that left no wheel must not replace the index by an empty one."""
    words = (str(tmp_path), "--out", str(tmp_path / "out"))
    assert write_index(*words, monkeypatch=monkeypatch) == 1


def test_a_page_of_the_index_is_installed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By pip, which reads the pages as it reads those of any index."""
    folder = tmp_path / "cpu"
    folder.mkdir()
    with zipfile.ZipFile(folder / "llama_cpp_python-1-py3-none-any.whl", "w") as archive:
        about = "llama_cpp_python-1.dist-info"
        archive.writestr(f"{about}/METADATA", "Name: llama_cpp_python\nVersion: 1\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    assert write_index(str(folder), "--out", str(tmp_path / "out"), monkeypatch=monkeypatch) == 0

    index = (tmp_path / "out" / "cpu").as_uri()
    download = ("download", "--no-deps", "--index-url", index, "--dest", str(tmp_path / "got"))
    command = [sys.executable, "-m", "pip", "--isolated", *download, "llama-cpp-python"]
    environment = {"PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got" / "llama_cpp_python-1-py3-none-any.whl").exists()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_scripts_that_exist(path: Path) -> None:
    """And every job that waits for another names one that is there."""
    workflow = yaml.safe_load(path.read_text("utf-8"))
    jobs = workflow["jobs"]
    for job in jobs.values():
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else {*needs} <= {*jobs}
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    named = [name for text in commands for name in re.findall(r"scripts/[\w./]+", text)]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_workflow_builds_every_backend() -> None:
    """Each with a folder of the index."""
    path = ROOT / ".github" / "workflows" / "wheels.yml"
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    built = {each["backend"] for each in jobs["llama"]["strategy"]["matrix"]["include"]}
    (publish,) = (
        step["run"] for step in jobs["index"]["steps"] if "write_index" in step.get("run", "")
    )
    published = {name.removeprefix("dist/llama-") for name in publish.split() if "llama-" in name}

    assert built == published == {*jobs["try"]["strategy"]["matrix"]["backend"]}
    assert built == {*portable.BACKENDS}


@table("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_are_complete(path: Path) -> None:
    """With what GitHub requires; a bug report has the doctor's output."""
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.name == "config.yml":
        return
    assert {"name", "description", "body"} <= {*form}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    assert all(field["id"] and field["attributes"]["label"] for field in fields)
    if path.name == "bug.yml":
        labels = [
            field["attributes"]["label"]
            for field in fields
            if field.get("validations", {}).get("required")
        ]
        assert any("specchat doctor" in label for label in labels)


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_of_containers_are_valid_shell(path: Path) -> None:
    """And may be run."""
    done = subprocess.run(["sh", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert path.stat().st_mode & 0o111


@pytest.mark.parametrize("path", sorted(PACKAGING.glob("*Dockerfile")), ids=lambda path: path.name)
def test_images_copy_and_run_what_exists(path: Path) -> None:
    """What one stage copies is what the repository has."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text("utf-8"), re.MULTILINE)
    words = [word for line in copied for word in line.split()]
    words += re.findall(r"scripts/[\w./]+", path.read_text("utf-8"))
    assert [word for word in words if not (ROOT / word).exists()] == []


def test_the_description_of_the_package_needs_no_repository() -> None:
    """An index page shows it where relative links and pictures lead nowhere."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text("utf-8")

    assert re.findall(r"\]\((?!https://)", text) == []
    assert "<this repository>" not in text
    assert any(each.startswith("Topic :: ") for each in project["classifiers"])
    assert any(each.startswith("Intended Audience :: ") for each in project["classifiers"])

"""llama.cpp's libraries: the backends that are files of their own, and errors of importing it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from specchat.errors import EngineFailed
from specchat.llama import native_libraries
from specchat.llama.device_list import all_backends
from specchat.llama.library import build, start, version
from specchat.llama.native_libraries import load_backends, own_library

COMPILER = shutil.which("cc")
needs_compiler = pytest.mark.skipif(
    not COMPILER or sys.platform == "win32", reason="it compiles libraries"
)
OWN = """
#include <string.h>
static int count = 0;
static char loaded[4096];
unsigned long ggml_backend_reg_count(void) { return count; }
const char *what_was_loaded(void) { return loaded; }
void *ggml_backend_load(const char *path) {
    strcat(strcat(loaded, strrchr(path, '/') + 1), " ");
    if (strstr(path, "unusable")) return 0;
    count++;
    return &count;
}
"""
SCORE = "int ggml_backend_score(void) { return %d; } int specchat_min_columns = %d;"
MISSING = "int missing_function(void); int call(void) { return missing_function(); }"

Libraries = Callable[..., Path]


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Libraries:
    """Return a function that compiles a folder of libraries and makes it llama.cpp's."""

    def make(**sources: str) -> Path:
        folder = tmp_path / "lib"
        folder.mkdir()
        for name, source in {"llama": OWN, **sources}.items():
            file = tmp_path / f"{name}.c"
            file.write_text(source)
            target = folder / f"lib{name.replace('_', '-')}.so"
            command = [COMPILER or "cc", "-shared", "-fPIC", "-o", str(target), str(file)]
            subprocess.run(command, check=True)
        own = ctypes.CDLL(str(folder / "libllama.so"))
        monkeypatch.setattr(native_libraries, "own_library", lambda: own)
        monkeypatch.setattr(native_libraries, "folder", lambda: folder)
        monkeypatch.setattr(native_libraries, "_loaded", {})
        return folder

    return make


def loaded() -> list[str]:
    """Return the files that ggml was asked to load, in order."""
    own = native_libraries.own_library()
    own.what_was_loaded.restype = ctypes.c_char_p
    return str(own.what_was_loaded().decode()).split()


@needs_compiler
def test_the_best_library_for_the_cpu_is_loaded_last(libraries: Libraries) -> None:
    """Each device's backend once, in order; the library of the best score that is safe.

    The one with AMX has the best score of all, and one of score 0 needs another CPU.
    """
    libraries(
        ggml_base="",
        ggml_rpc="",
        ggml_vulkan="",
        ggml_cpu_x64=SCORE % (1, 5),
        ggml_cpu_zen4=SCORE % (500, 7),
        ggml_cpu_haswell=SCORE % (60, 6),
        ggml_cpu_cooperlake=SCORE % (0, 8),
        ggml_cpu_sapphirerapids=SCORE % (900, 9),
    )
    load_backends()
    load_backends()

    assert loaded() == ["libggml-rpc.so", "libggml-vulkan.so", "libggml-cpu-zen4.so"]
    assert native_libraries.variant() == "zen4"
    columns = ctypes.c_int.in_dll(native_libraries.backend_library("cpu"), "specchat_min_columns")
    assert columns.value == 7


@needs_compiler
def test_a_cpu_that_no_library_fits_is_an_error(libraries: Libraries) -> None:
    """One line that says where the libraries are and what to do."""
    folder = libraries(ggml_cpu_haswell=SCORE % (0, 2), ggml_cpu_sapphirerapids=SCORE % (9, 2))
    with pytest.raises(EngineFailed) as raised:
        load_backends()

    assert str(folder) in str(raised.value)
    assert "`specchat doctor`" in str(raised.value)
    assert loaded() == []


@needs_compiler
def test_a_build_with_a_single_library_for_cpus_loads_it(libraries: Libraries) -> None:
    """Then there are no scores."""
    libraries(ggml_cpu="int anything;")
    load_backends()

    assert loaded() == ["libggml-cpu.so"]


@needs_compiler
def test_a_backend_that_cannot_be_loaded_has_a_reason(libraries: Libraries) -> None:
    """A driver that is missing costs the GPU, and the doctor says which library."""
    libraries(ggml_cpu_x64=SCORE % (1, 2), ggml_unusable=MISSING)
    load_backends()

    assert loaded() == ["libggml-unusable.so", "libggml-cpu-x64.so"]
    (name,) = native_libraries.why_not_loaded()
    assert name == "unusable"
    assert "missing_function" in native_libraries.why_not_loaded()[name]


@needs_compiler
def test_only_the_folder_of_the_wheel_is_searched(
    libraries: Libraries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the current folder nor a variable that leads elsewhere."""
    libraries(ggml_cpu_x64=SCORE % (1, 2))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("libggml-cpu-zen4.so", "libggml-vulkan.so"):
        shutil.copy(tmp_path / "lib" / "libggml-cpu-x64.so", elsewhere / name)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("GGML_BACKEND_PATH", str(elsewhere / "libggml-vulkan.so"))
    load_backends()

    assert loaded() == ["libggml-cpu-x64.so"]


def test_the_build_under_test_has_its_backends_once() -> None:
    """Loading them again, or from a copy of a library, would list devices twice."""
    start()
    before = list(all_backends())
    load_backends()

    assert "CPU" in before
    assert len(before) == len(set(before))
    assert list(all_backends()) == before
    variant = native_libraries.variant()
    assert build().startswith(f"{version()}: {variant} " if variant else f"{version()}: ")
    assert hasattr(own_library(), "ggml_backend_load")


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("words", "code", "wanted"),
    [
        (
            ["ask", "hi"],
            "raise RuntimeError('libx.so.1')",
            "llama.cpp cannot be loaded (libx.so.1)",
        ),
        (["worker"], "raise AttributeError('llama_x')", "llama.cpp cannot be loaded (llama_x)"),
        *(
            (
                words,
                "raise ModuleNotFoundError('x', name='llama_cpp')",
                "llama-cpp-python is not in",
            )
            for words in (["ask", "hi"], ["bench"])
        ),
    ],
)
def test_a_llama_cpp_that_cannot_be_imported_is_one_line(
    tmp_path: Path, words: list[str], code: str, wanted: str
) -> None:
    """In this process and in the engine's; a user has done nothing wrong, and nothing internal."""
    (tmp_path / "llama_cpp").mkdir()
    (tmp_path / "llama_cpp" / "__init__.py").write_text(code)
    root = Path(native_libraries.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "specchat", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"specchat: {wanted}")
    assert ": `specchat doctor` prints how to " in done.stderr
    assert done.stderr.count("\n") == 1

"""Parts of llama.cpp that llama-cpp-python builds and nothing loads.

llama.cpp's library of what its own tools have in common is almost half of the work of a build.
llama-cpp-python's project file asks for it whatever CMAKE_ARGS says, so that file is changed.
"""

from __future__ import annotations

from pathlib import Path

PROJECT = Path("CMakeLists.txt")
COMMON = 'set(LLAMA_BUILD_COMMON ON CACHE BOOL "Build llama.cpp common library" FORCE)'
WITHOUT_COMMON = COMMON.replace(" ON ", " OFF ")


def leave_out(source: Path) -> bool:
    """Change an unpacked source of llama-cpp-python; False if that does not fit this release.

    The build then takes longer, and makes the same otherwise.
    """
    project = source / PROJECT
    about = project.read_text("utf-8") if project.is_file() else ""
    if about.count(COMMON) != 1:
        return False
    project.write_text(about.replace(COMMON, WITHOUT_COMMON), "utf-8")
    return True

"""A switch in llama.cpp's source that lets verification give the bits of single tokens.

On CPUs, tinyBLAS (`llamafile_sgemm`) multiplies matrices of two columns and more, and adds up in
another order than the kernel for a single one. It makes prompts 10 to 20 % faster, so it is not
left out. The switch is the number of columns it begins with, an exported variable: without a change
by specchat (`specchat.llama.tinyblas`) llama.cpp computes what it always does.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = Path("vendor", "llama.cpp", "ggml", "src", "ggml-cpu", "llamafile", "sgemm.cpp")
BEGINNING, LIMIT = "\nbool llamafile_sgemm(", "if (n < 2)\n"
VARIABLE = """
#ifdef _WIN32
__declspec(dllexport)
#endif
extern "C" { int specchat_min_columns = 2; }
"""
CHANGES = (
    (BEGINNING, VARIABLE + BEGINNING),
    (LIMIT, "if (n < specchat_min_columns)\n"),
)
"""Texts that occur once in the source, and what replaces them."""


def add_switch(source: Path) -> bool:
    """Add the switch to an unpacked source of llama-cpp-python; False if it does not fit there.

    specchat then measures which drafts are exact without it.
    """
    path = source / SOURCE
    text = path.read_text("utf-8") if path.is_file() else ""
    if any(text.count(old) != 1 for old, _ in CHANGES):
        return False
    for old, new in CHANGES:
        text = text.replace(old, new)
    path.write_text(text, "utf-8")
    return True

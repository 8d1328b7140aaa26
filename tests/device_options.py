"""How the tests on a device load their models.

Passes of up to eight tokens take the kernels of single tokens, which a software renderer compiles
in a fraction of the time that those for long prompts take; one test takes these, too.

Flash attention is off, because Mesa before 23 crashes with it after some answers: its software
renderer follows every binding of a descriptor set, also those that a kernel does not use, and flash
attention leaves bindings to buffers that are freed when a larger one is needed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

WritePair: TypeAlias = Callable[..., tuple[Path, Path]]
ALL = 99
SHORT_PASS = 8
PROMPT = [40, 75, 111, 260, 90, 33, 201, 150]
EXACT: dict[str, Any] = {
    "ctx": 256,
    "batch": SHORT_PASS,
    "flash_attention": "off",
    "cache_type": "f32",
    "learn": False,
}

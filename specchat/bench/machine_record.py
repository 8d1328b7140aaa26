"""The machine that a benchmark ran on."""

import os
import platform
from pathlib import Path
from typing import Any


def machine_record() -> dict[str, Any]:
    """Return the machine's system, processor, number of cores and Python version."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text("utf-8", "replace").splitlines() if facts.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

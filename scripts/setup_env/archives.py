"""Extracting the source of llama.cpp with any Python that specchat runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from scripts.setup_env.running import SetUpFailed


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract an archive; nothing in it may lead out of the folder. Raises SetUpFailed."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
        return
    for member in archive:  # Python before 3.11.4, such as Debian 12's
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
            raise SetUpFailed(f"{member.name} of the archive is not a file inside its folder")
    archive.extractall(folder)  # noqa: S202  # every member was looked at

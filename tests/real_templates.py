"""The folder of the chat templates that come with llama.cpp, for the tests that compare with it."""

from pathlib import Path

import pytest

from scripts.setup_env.running import SetUpFailed
from scripts.setup_env.stages import llama_version
from scripts.setup_env.templates import find_templates


def _folder() -> Path | None:
    try:
        return find_templates(llama_version())
    except SetUpFailed as failure:
        raise pytest.UsageError(str(failure)) from failure


FOLDER = _folder()
needs_templates = pytest.mark.skipif(
    FOLDER is None, reason="it needs the chat templates of llama.cpp, which scripts/test fetches"
)


def template_of(name: str) -> str:
    """Return the text of a template."""
    assert FOLDER is not None
    return (FOLDER / f"{name}.jinja").read_text("utf-8")

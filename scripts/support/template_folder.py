"""Where llama.cpp's chat templates are."""

import sys
from pathlib import Path

from scripts.setup_env.running import SetUpFailed
from scripts.setup_env.stages import llama_version
from scripts.setup_env.templates import VARIABLE, find_templates


def find_folder() -> Path:
    """Return the folder that the set-up keeps the templates in; exit without one."""
    try:
        folder = find_templates(llama_version())
    except SetUpFailed as failure:
        sys.exit(str(failure))
    if folder is None:
        sys.exit(
            f"the templates are not here: run scripts/test once, or name a folder ({VARIABLE})"
        )
    return folder

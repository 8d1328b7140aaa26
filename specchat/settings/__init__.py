"""The settings: options read from one TOML file and the environment.

The engine never reads them: a script's results do not depend on a user's file.
"""

from specchat.settings.editor import create_settings, documented_settings, write_setting
from specchat.settings.schema import SETTINGS, find_setting
from specchat.settings.sources import (
    Settings,
    Source,
    read_settings,
    settings_path,
    wrong_setting,
)

__all__ = [
    "SETTINGS",
    "Settings",
    "Source",
    "create_settings",
    "documented_settings",
    "find_setting",
    "read_settings",
    "settings_path",
    "write_setting",
    "wrong_setting",
]

"""The Python that the set-up runs on: this one if it is new enough, or one found on the PATH.

Any Python since 2.7 can read this file, so that a user with an old one gets a line that says what
to do. It imports only `os` and `sys` at first.
"""

import os
import sys

OLDEST = (3, 11)
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11", "python3", "python")
HAS_NEEDS = "import sys, venv; sys.exit(sys.version_info < (%d, %d))" % OLDEST
PACKAGES = (
    ("apt-get", "sudo apt install python3 python3-venv"),
    ("dnf", "sudo dnf install python3.12"),
    ("zypper", "sudo zypper install python312"),
    ("pacman", "sudo pacman -S python"),
    ("apk", "sudo apk add python3"),
    ("brew", "brew install python@3.13"),
)
"""The command that installs a new Python, by the package manager that is found on the PATH."""


def require_new_python():
    # type: () -> None
    """Continue under Python 3.11 or newer: this one, or the first one found on the PATH."""
    if sys.version_info >= OLDEST:
        return
    import subprocess

    with open(os.devnull, "w") as nothing:
        for name in NAMES:
            try:
                found = subprocess.call([name, "-c", HAS_NEEDS], stdout=nothing, stderr=nothing)
            except OSError:
                continue
            if found == 0:
                os.execvp(name, [name] + sys.argv)
    version = ".".join(str(number) for number in sys.version_info[:3])
    sys.exit(
        "specchat: Python 3.11 or newer was not found (this is %s): %s, then run this again"
        % (version, _how_to_install())
    )


def _how_to_install():
    # type: () -> str
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for manager, command in PACKAGES:
        if any(os.access(os.path.join(folder, manager), os.X_OK) for folder in folders):
            return command
    return "install it"

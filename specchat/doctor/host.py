"""Checks of memory, disk, folders, settings, the catalogue and the connection to the hub."""

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import specchat
from specchat.catalogue.catalogue_file import DEMO, own_catalogue_path, read_catalogue
from specchat.catalogue.local_models import find_local_models
from specchat.catalogue.pairs import Pair, load_pairs
from specchat.doctor import Finding
from specchat.doctor.repairs import reinstall
from specchat.errors import SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.offline import is_offline
from specchat.hub.references import endpoint, shown_endpoint
from specchat.network.network_errors import reason
from specchat.planning.device import find_machine
from specchat.settings.sources import read_settings, settings_path
from specchat.system.private_files import DAMAGED, FOLDERS
from specchat.wording import size_text

if TYPE_CHECKING:  # slow to import
    import httpx2

LITTLE_MEMORY = 2 * 10**9
"""Few useful models fit into less memory than this, in bytes."""

LITTLE_DISK = 5 * 10**9
"""Few useful pairs fit into less disk space than this, in bytes."""

TIMEOUT_SECONDS = 3.0
STATUSES = {407: "the proxy requires a login", 429: "too many requests: wait a few minutes"}
CONSEQUENCE = "only pairs with a wheel (smollm2-135m) can be pulled; installed models work"
OFFLINE = ("export SPECCHAT_OFFLINE=1",)
PROXY = ("export HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT",)


def check_specchat() -> Finding:
    """Show the versions of specchat, Python and the system."""
    detail = f"{specchat.__version__}, Python {platform.python_version()} on {platform.platform()}"
    return Finding("specchat", "ok", detail)


def check_memory() -> Finding:
    """Check how much memory is free."""
    free = find_machine().free
    if free is None:
        return Finding("memory", "ok", "the system does not report how much is free")
    detail = f"{size_text(free)} free"
    if free >= LITTLE_MEMORY:
        return Finding("memory", "ok", detail)
    detail += ", too little for most models: close other programs"
    return Finding("memory", "warning", detail, (_processes_command(),))


def check_disk() -> Finding:
    """Check how much disk space is left for models."""
    root = cache_root()
    free = shutil.disk_usage(_existing(root)).free
    detail = f"{size_text(free)} free for models in {root}"
    if free < LITTLE_DISK:
        fix = ("specchat list", "specchat rm NAME  # or set HF_HOME to a folder on a larger disk")
        return Finding("disk", "warning", f"{detail}, too little for most pairs", fix)
    return Finding("disk", "ok", detail)


def check_folders() -> Iterator[Finding]:
    """Check that specchat can write to its folders, and that they are private."""
    yield _folder("model cache", cache_root(), is_private=False)
    for name in ("config", "data", "state", "log"):
        folder: Path = getattr(FOLDERS, f"user_{name}_path")
        yield _folder(f"{name} folder", folder, is_private=True)


def check_saved_files() -> Finding:
    """Check for private files that were damaged and set aside."""
    folders = {FOLDERS.user_data_path, FOLDERS.user_state_path}
    damaged = sorted(path for folder in folders for path in folder.glob(f"*{DAMAGED}-*"))
    if not damaged:
        return Finding("saved files", "ok", "no damaged files")
    names = "\n".join(f"{path} is damaged and was set aside" for path in damaged)
    fix = tuple(f"rm {shlex.quote(str(path))}  # when you no longer need it" for path in damaged)
    return Finding("saved files", "warning", names, fix)


def check_settings() -> Finding:
    """Check that the settings can be read."""
    path = settings_path()
    try:
        settings = read_settings()
    except SpecchatError as error:
        fix = ("specchat config edit",) if str(path) in str(error) else ()
        return Finding("settings", "problem", str(error), fix)
    note = "" if os.path.isfile(path) else " (no such file: the defaults apply)"
    ignored = f"\n{settings.notice}" if settings.notice else ""
    return Finding("settings", "ok", f"{path}{note}{ignored}")


def check_catalogue() -> Finding:
    """Check the catalogues, report all mistakes, and show what is installed."""
    try:
        mistakes, pairs = read_catalogue().mistakes, load_pairs()
    except SpecchatError as error:
        return Finding("catalogue", "problem", str(error), reinstall())
    if mistakes:
        return Finding("catalogue", "problem", "\n".join(mistakes), _fix_own_catalogue())
    own = ", ".join(name for name in pairs if name != DEMO)
    count = _num_other_files(pairs.values())
    others = f"{count} model{'s' * (count > 1)} of no pair" if count else ""
    installed = " and ".join(filter(None, [own, others]))
    demo_only = "only the demo pair is installed: `specchat list` shows others"
    return Finding("catalogue", "ok", f"installed: {installed}" if installed else demo_only)


def _num_other_files(pairs: Iterable[Pair]) -> int:
    """Return how many models are here that no pair uses, such as files pulled by name."""
    used = {path.resolve() for pair in pairs for path in (pair.target, pair.draft) if path}
    return sum(model.path.resolve() not in used for model in find_local_models())


def check_network() -> Finding:
    """Send the hub one short request, unless in offline mode."""
    if is_offline():
        return Finding("network", "ok", "not checked in offline mode; only pulling needs it")
    from specchat.network.web_client import CLIENTS, Request

    try:
        endpoint()
    except SpecchatError as error:
        return Finding("network", "problem", str(error), ("unset HF_ENDPOINT",))
    try:
        return Request(CLIENTS, _contact).result(TIMEOUT_SECONDS)
    except TimeoutError:
        return _unreachable(f"no answer within {TIMEOUT_SECONDS:g} s")


def _fix_own_catalogue() -> tuple[str, ...]:
    path = shlex.quote(str(own_catalogue_path()))
    usual = "notepad" if sys.platform == "win32" else "vi"
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual
    return f"{editor} {path}", f"mv {path} {path}.old  # or go without it"


def _processes_command() -> str:
    if sys.platform == "win32":
        return "Get-Process | Sort-Object WorkingSet -Descending | Select-Object -First 10"
    return "top -o mem" if sys.platform == "darwin" else "ps aux --sort=-rss | head"


def _folder(name: str, folder: Path, *, is_private: bool) -> Finding:
    nearest = _existing(folder)
    quoted = shlex.quote(str(nearest))
    if not os.path.isdir(nearest):
        return Finding(
            name, "problem", f"{nearest} is not a folder", (f"mv {quoted} {quoted}.old",)
        )
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        is_mine = sys.platform == "win32" or nearest.stat().st_uid == os.getuid()
        fix = "chmod u+rwx" if is_mine else 'sudo chown -R "$(id -u)"'
        return Finding(name, "problem", f"{nearest} is not writable", (f"{fix} {quoted}",))
    if nearest != folder:
        return Finding(name, "ok", f"{folder} (not created yet)")
    if is_private and sys.platform != "win32" and folder.stat().st_mode & 0o077:
        detail = f"{folder} can be read by other users"
        return Finding(name, "warning", detail, (f"chmod go-rwx {quoted}",))
    return Finding(name, "ok", str(folder))


def _existing(path: Path) -> Path:
    return next(
        existing for existing in (path, *path.absolute().parents) if os.path.exists(existing)
    )


def _contact(session: "httpx2.Client") -> Finding:
    began = monotonic()
    try:
        answer = session.head(endpoint(), timeout=TIMEOUT_SECONDS, follow_redirects=False)
        address = urljoin(endpoint(), answer.headers.get("Location", ""))
    except SpecchatError as error:  # a proxy or certificates that cannot be used
        return Finding("network", "problem", str(error), OFFLINE)
    except Exception as error:  # noqa: BLE001 -- any error means the hub is not reached
        why = reason(error)
        return _unreachable(why, PROXY if "407" in why else OFFLINE)
    milliseconds = 1000 * (monotonic() - began)
    status = answer.status_code
    stays_here = answer.is_redirect and urlsplit(address).netloc == urlsplit(endpoint()).netloc
    has_no_page = status in {404, 405}  # some mirrors have no front page
    if answer.is_success or has_no_page or stays_here:
        return Finding("network", "ok", f"{shown_endpoint()} answers within {milliseconds:.0f} ms")
    meaning = STATUSES.get(status, "refused: check HF_ENDPOINT and your firewall")
    if answer.is_redirect:
        host = urlsplit(address).netloc
        meaning = f"redirected to {host}: log in to the network or check HF_ENDPOINT"
    elif answer.is_server_error:
        meaning = "server error: try again later, or check HF_ENDPOINT"
    detail = f"{shown_endpoint()} answers with status {status}, {meaning}; {CONSEQUENCE}"
    return Finding("network", "warning", detail, PROXY if status == 407 else OFFLINE)


def _unreachable(why: str, fix: tuple[str, ...] = OFFLINE) -> Finding:
    detail = (
        f"{shown_endpoint()} cannot be reached ({why}): check the network, HF_ENDPOINT and"
        f" HTTPS_PROXY; {CONSEQUENCE}"
    )
    return Finding("network", "warning", detail, fix)

"""Names of files and repositories of the hub, in every form that people type or paste.

A name is org/repo/file.gguf, org/repo, org/repo:Q4_K_M as llama.cpp and Ollama write it, or the
address of a page of the hub.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlsplit

from specchat.errors import InvalidOption
from specchat.hub.references import (
    MAIN,
    Reference,
    endpoint,
    require_path,
    require_repository,
    shown_endpoint,
)
from specchat.safe_text import without_password

HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
PREFIXES = ("hf:", "huggingface:")
"""Before org/repo, as some programs write it."""
FILE_PAGES, TREE_PAGE = {"resolve", "blob", "raw"}, "tree"
SECTION = "models/"
OTHER_SECTIONS = {"datasets", "spaces", "collections", "papers", "posts", "docs", "organizations"}
OTHER_PAGES = {"discussions", "commits", "commit", "settings", "edit"}
SHOWN_FILE = "show_file_info"
"""The query of the hub's page about one file of a repository."""
MOST_FIELDS = 100
SUFFIX = ".gguf"
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
LATEST = "latest"
"""Ollama's word for the usual quantization."""
AROUND = " \t\r\n\"'<>"
"""Characters that come along when a name is copied from a page or a message."""
OLLAMA_HOSTS = {"ollama.com", "www.ollama.com", "registry.ollama.ai"}


@dataclass(frozen=True, slots=True)
class HubName:
    """The parts of a name: a repository, and perhaps a file, a quantization, or a folder in it."""

    repository: str
    file: str = ""
    revision: str = MAIN
    quantisation: str = ""
    folder: str = ""

    def __str__(self) -> str:
        """Return the shortest form that names the same; a page's address for a revision."""
        inside = self.file or self.folder
        if self.revision != MAIN or self.folder:
            page = "blob" if self.file else TREE_PAGE
            revision = f"{page}/{quote(self.revision, '')}"
            return f"{shown_endpoint()}/{self.repository}/{revision}/{inside}".rstrip("/")
        if self.file:
            return f"{self.repository}/{self.file}"
        return f"{self.repository}:{self.quantisation}" if self.quantisation else self.repository

    @property
    def reference(self) -> Reference:
        """The file. Raises InvalidOption for a name without one, or with an invalid one."""
        if not self.file:
            raise InvalidOption(
                f"{self} names a repository, not a file: `specchat pull {self}` lists its files"
            )
        try:
            return Reference(self.repository, self.file, self.revision)
        except ValueError as error:
            raise InvalidOption(str(error)) from None


def looks_like_name(text: str) -> bool:
    """Return True if a user's text names something on the hub rather than a pair."""
    return "/" in text or _has_prefix(text.strip(AROUND))


def is_address(text: str) -> bool:
    """Return True if a text begins with a host of the hub, a scheme, or `hf:`."""
    host = text.partition("/")[0].partition(":")[0]
    return "://" in text or _has_prefix(text) or ("/" in text and host.lower() in HUB_HOSTS)


def is_path(text: str) -> bool:
    """Return True if a text can only be the path of a file of this machine."""
    return text.startswith(("/", "./", "../", "~")) or "\\" in text or text in {".", ".."}


def is_hub_name(text: str) -> bool:
    """Return True if a text could name a file or a repository of the hub."""
    if not looks_like_name(text) or is_path(text):
        return False
    try:
        name = parse_name(text)
    except InvalidOption:
        return False
    return bool(name.file) or not name.repository.lower().endswith(".gguf")


def _has_prefix(text: str) -> bool:
    return text.lower().startswith(PREFIXES)


def parse_name(text: str) -> HubName:
    """Return the repository that a name stands for, with its other parts. Raises InvalidOption."""
    wanted = unicodedata.normalize("NFC", text.strip(AROUND))
    try:
        names, shown = _parts(wanted)
    except ValueError as error:
        raise InvalidOption(f"{without_password(text)!r} cannot be read: {error}") from None
    if len(names) < 2 or not names[1]:
        raise InvalidOption(
            f"{text!r} does not name a repository: write org/repo, org/repo:Q4_K_M,"
            " org/repo/file.gguf or the address of its page"
        )
    try:
        return _name(names, shown)
    except ValueError as error:
        raise InvalidOption(str(error)) from None


def _name(names: Sequence[str], shown: str) -> HubName:
    """Return the name with these parts; `shown` is a file that the page's query names."""
    org, (repo, colon, tag), rest = names[0], names[1].partition(":"), list(names[2:])
    while rest and not rest[-1]:  # a slash at the end
        rest.pop()
    if org in OTHER_SECTIONS:
        raise ValueError(f"{org}/{repo} is a page of the hub's {org}, not of a model")
    repository = require_repository(f"{org}/{repo}")
    if colon:
        if rest or not TAG.fullmatch(tag):
            raise ValueError(f"{repository}:{tag} does not end in the name of a quantization")
        return HubName(repository, quantisation="" if tag.lower() == LATEST else tag)
    page = rest[0] if rest else ""
    is_page = page in {*FILE_PAGES, TREE_PAGE, *OTHER_PAGES}
    ends_in_file = bool(rest) and rest[-1].lower().endswith(SUFFIX)
    if page in FILE_PAGES and len(rest) > 2:
        return HubName(repository, "/".join(rest[2:]), _revision(rest))
    if shown:
        return HubName(repository, shown, _revision(rest) if page == TREE_PAGE else MAIN)
    if page == TREE_PAGE and not ends_in_file:
        folder = "/".join(rest[2:])
        if folder:
            require_path(folder, "folder")
        return HubName(repository, revision=_revision(rest), folder=folder)
    if is_page and not ends_in_file:
        is_of_revision = page in FILE_PAGES
        return HubName(repository, revision=_revision(rest) if is_of_revision else MAIN)
    return HubName(repository, "/".join(rest))


def _revision(rest: Sequence[str]) -> str:
    """Return the revision that follows the kind of a page."""
    revision = rest[1] if len(rest) > 1 else MAIN
    require_path(revision, "revision")
    return revision


def _parts(text: str) -> tuple[Sequence[str], str]:
    """Return the parts of a path or an address, the repository's first, and the file shown.

    Raises ValueError for an address that cannot be read, InvalidOption for one of another place.
    """
    if _has_prefix(text):
        text = text.partition(":")[2].lstrip("/").removeprefix(SECTION)
    text = re.sub(r"^(https?):/+", r"\1://", text, flags=re.IGNORECASE)  # a path has one slash
    if "://" not in text:
        host, _, rest = text.partition("/")
        if host.lower() in OLLAMA_HOSTS:
            raise InvalidOption(_of_ollama(rest))
        if not is_address(text):
            return text.split("/"), ""
        text = f"https://{text}"
    address, _, query = text.partition("#")[0].partition("?")
    url = urlsplit(address)
    host = (url.hostname or "").lower()
    if host in OLLAMA_HOSTS:
        raise InvalidOption(_of_ollama(url.path.strip("/")))
    if address.startswith(endpoint() + "/"):
        path = address.removeprefix(endpoint() + "/")
    elif url.scheme.lower() in {"http", "https"} and host in HUB_HOSTS and "@" not in url.netloc:
        path = url.path.removeprefix("/")
    else:
        raise InvalidOption(
            f"{without_password(text)!r} is not at {shown_endpoint()}: set HF_ENDPOINT for another"
            " hub or a mirror"
        )
    shown = parse_qs(query, max_num_fields=MOST_FIELDS).get(SHOWN_FILE, [""])[-1]
    return [unquote(name) for name in path.removeprefix(SECTION).split("/")], shown


def _of_ollama(name: str) -> str:
    name = name.removeprefix("library/")
    return (
        f"{name} is in Ollama's registry, not on the hub: `ollama pull {name}` fetches it, then"
        f" `specchat --target {name}` uses it"
    )

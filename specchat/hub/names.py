"""Names of files and repositories of the hub, in every form that people type or paste.

A name is org/repo/file.gguf, org/repo, org/repo:Q4_K_M as llama.cpp and Ollama write it, or the
address of a page of the hub.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from specchat.errors import InvalidOption
from specchat.hub.references import MAIN, Reference, endpoint, require_repository, shown_endpoint

HUB_HOSTS = {"huggingface.co", "www.huggingface.co", "hf.co"}
PREFIXES = ("hf:", "huggingface:")
"""Before org/repo, as some programs write it."""
FILE_PAGES, TREE_PAGE = {"resolve", "blob", "raw"}, "tree"
OTHER_PAGES = {"discussions", "commits", "commit", "settings", "edit"}
SHOWN_FILE = "show_file_info"
"""The query of the hub's page about one file of a repository."""
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
LATEST = "latest"
"""Ollama's word for the usual quantization."""
AROUND = " \t\r\n\"'<>"
"""What comes along when a name is copied from a page or a message."""
OLLAMA_HOSTS = {"ollama.com", "www.ollama.com", "registry.ollama.ai"}


@dataclass(frozen=True, slots=True)
class HubName:
    """What a name says: a repository, and perhaps a file, or a quantization, or a folder in it."""

    repository: str
    file: str = ""
    revision: str = MAIN
    quantisation: str = ""
    folder: str = ""

    def __str__(self) -> str:
        """Return the name in its shortest form."""
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
    return "/" in text or text.strip(AROUND).startswith(PREFIXES)


def is_address(text: str) -> bool:
    """Return True if a text begins with a host of the hub, a scheme, or `hf:`."""
    return "://" in text or text.startswith(PREFIXES) or text.partition("/")[0] in HUB_HOSTS


def is_hub_name(text: str) -> bool:
    """Return True if a text could name a file or a repository of the hub."""
    if not looks_like_name(text) or text.startswith((".", "~", "/")):
        return False
    try:
        name = parse_name(text)
    except InvalidOption:
        return False
    return bool(name.file) or not name.repository.lower().endswith(".gguf")


def parse(text: str) -> Reference:
    """Return the file that a name names. Raises InvalidOption."""
    return parse_name(text).reference


def parse_name(text: str) -> HubName:
    """Return what a name says of a repository. Raises InvalidOption."""
    wanted = unicodedata.normalize("NFC", text.strip(AROUND))
    names, shown = _parts(wanted)
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
    repository = require_repository(f"{org}/{repo}")
    if colon:
        if rest or not TAG.fullmatch(tag):
            raise ValueError(f"{repository}:{tag} does not end in the name of a quantization")
        return HubName(repository, quantisation="" if tag.lower() == LATEST else tag)
    page = rest[0] if rest else ""
    if page in FILE_PAGES and len(rest) > 2:
        return HubName(repository, "/".join(rest[2:]), rest[1])
    if shown:
        revision = rest[1] if page == TREE_PAGE and len(rest) > 1 else MAIN
        return HubName(repository, shown, revision)
    if page == TREE_PAGE and not rest[-1].lower().endswith(".gguf"):
        revision, folder = (rest[1] if len(rest) > 1 else MAIN), "/".join(rest[2:])
        return HubName(repository, revision=revision, folder=folder)
    if page in OTHER_PAGES and not rest[-1].lower().endswith(".gguf"):
        return HubName(repository)
    return HubName(repository, "/".join(rest))


def _parts(text: str) -> tuple[Sequence[str], str]:
    """Return the parts of a path or an address, the repository's first, and the file shown."""
    for prefix in PREFIXES:
        if text.startswith(prefix):
            text = text.removeprefix(prefix).lstrip("/")
    text = re.sub(r"^(https?):/+", r"\1://", text)  # a path as which it came has one slash
    if "://" not in text:
        host, _, rest = text.partition("/")
        if host.lower() in OLLAMA_HOSTS:
            raise InvalidOption(_of_ollama(rest))
        if host.lower() not in HUB_HOSTS:
            return text.split("/"), ""
        text = f"https://{text}"
    address = text.partition("#")[0]
    address, _, query = address.partition("?")
    url = urlsplit(address)
    if url.netloc.lower() in OLLAMA_HOSTS:
        raise InvalidOption(_of_ollama(url.path.strip("/")))
    if address.startswith(endpoint() + "/"):
        path = address.removeprefix(endpoint() + "/")
    elif url.scheme in {"http", "https"} and url.netloc.lower() in HUB_HOSTS:
        path = url.path.removeprefix("/")
    else:
        raise InvalidOption(
            f"{text!r} is not at {shown_endpoint()}: set HF_ENDPOINT for another hub or a mirror"
        )
    shown = parse_qs(query, max_num_fields=20).get(SHOWN_FILE, [""])[-1]
    return [unquote(name) for name in path.removeprefix("models/").split("/")], shown


def _of_ollama(name: str) -> str:
    name = name.removeprefix("library/")
    return (
        f"{name} is in Ollama's registry, not on the hub: `ollama pull {name}` fetches it, then"
        f" `specchat --target {name}` uses it"
    )

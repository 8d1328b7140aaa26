"""Files and folders named with @ in a message: completed during typing, attached on sending.

A file is a text or an image; of folders only texts are attached.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from specchat.chat.conversation import Attachment
from specchat.chat.folder_files import has_wildcards, read_files
from specchat.chat.text_files import LARGEST_FILE, decoded
from specchat.errors import InvalidOption
from specchat.images.image import LONGEST_BEGINNING, Image, type_of
from specchat.safe_text import harmless

NAME = re.compile(r'(?<![^\s(\[{<"\'])@(?:"([^"\n]+)"|(\S+))')
"""A file name, in quotation marks if it contains spaces."""
COPIED_NAME = "copied-{}.png"
"""The name of a copied picture, which has no file: the same in every chat, by its digest."""
COPIED = re.compile(COPIED_NAME.format(r"[0-9a-f]+").replace(".", r"\."))
PUNCTUATION = ".,;:!?)]}>\"'"
"""Characters that may follow a name in a sentence and do not belong to it."""
NO_PATH = (OSError, RuntimeError, ValueError)
"""Raised for impossible paths: too long, with a null byte, or in an unknown user's home."""
MOST_COMPLETIONS = 200
MOST_NAMED = 3
"""File names in one notice."""
LONGEST_PATHS = 4096


def completions(word: str, folder: Path) -> list[str]:
    """Return the files and folders that complete a word, quoted if they contain spaces.

    A folder gets no closing quotation mark, because a name inside it may follow.
    """
    within, slash, begin = word.removeprefix('"').rpartition("/")
    try:
        parent = Path(within + slash).expanduser()
        found = sorted((folder / parent).iterdir(), key=lambda path: path.name.lower())
    except NO_PATH:
        return []
    matching = [
        path
        for path in found
        if path.name.lower().startswith(begin.lower())
        and (begin.startswith(".") or not path.name.startswith("."))
        and path.name == harmless(path.name)
    ]
    return [_completed(parent, path) for path in matching[:MOST_COMPLETIONS]]


@dataclass(slots=True)
class NamedFiles:
    """What a message names: files with their contents, and the names that match nothing."""

    files: dict[str, Attachment] = field(default_factory=dict)
    shown: dict[str, Image] = field(default_factory=dict)
    """The images, by name."""
    missing: list[str] = field(default_factory=list)
    encodings: dict[str, str] = field(default_factory=dict)
    """The encodings other than UTF-8 that files were read in, by name."""
    folders: dict[str, str] = field(default_factory=dict)
    """For each folder or pattern, how many files were attached, and what was skipped and why."""

    @property
    def attachments(self) -> list[Attachment]:
        """The files in the order in which they are named."""
        return list(self.files.values())

    @property
    def images(self) -> list[Image]:
        """The images in the order in which they are named."""
        return list(self.shown.values())

    def notices(self) -> Iterator[str]:
        """Yield what the user should know: encodings, and what was taken of folders."""
        for encoding in dict.fromkeys(self.encodings.values()):
            names = [harmless(name) for name, each in self.encodings.items() if each == encoding]
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            verb = "was" if len(names) == 1 else "were"
            yield f"{', '.join(names[:MOST_NAMED])}{more} {verb} read as {encoding}."
        for name, words in self.folders.items():
            yield f"{harmless(name)}: attached {words}."

    def take(self, name: str, folder: Path, before: Mapping[str, Attachment | Image]) -> bool:
        """Add the file, folder or pattern of this name; return False if there is none.

        `before` has earlier attachments, used for files deleted since.
        """
        path = _existing(folder, name)
        if path is not None and path.is_file():
            if _is_image(path):
                from specchat.images.picture import image_in  # for those who attach some

                self.shown[name] = image_in(path, name)
                return True
            content, encoding = _content(path, name)
            self.files[name] = Attachment(name, content)
            self.encodings |= {name: encoding} if encoding else {}
            return True
        if (path is not None or has_wildcards(name)) and self._take_folder(name, folder):
            return True
        known = [each for each in before if each == name or each.startswith(f"{name.rstrip('/')}/")]
        for each in known:
            found = before[each]
            if isinstance(found, Image):
                self.shown[each] = found
            else:
                self.files[each] = found
        return bool(known)

    def _take_folder(self, name: str, folder: Path) -> bool:
        """Add the files of a folder or pattern; return False if nothing is there."""
        with suppress(*NO_PATH):
            found = read_files(name, folder)
            if not found.contents and not found.skipped:
                return False
            for each, content in found.contents.items():
                self.files[each] = Attachment(each, content)
            self.encodings |= found.encodings
            self.folders[name] = str(found)
            return True
        return False


def named_files(text: str, folder: Path, known: Iterable[Attachment | Image] = ()) -> NamedFiles:
    """Return the files and folders that a message names.

    `known` has earlier attachments, used for files deleted since. Raises InvalidOption for a file
    that is too large, or neither text nor an image, for a folder with too much of them, and for a
    copied picture that an earlier chat had.
    """
    before = {each.name: each for each in known}
    named = NamedFiles()
    for quoted, plain in NAME.findall(text):
        names = [quoted] if quoted else _possible(plain)
        if not any(named.take(name, folder, before) for name in names):
            missing = quoted or plain.rstrip(PUNCTUATION) or plain
            named.missing += [missing] * (missing not in named.missing)
    for name in filter(COPIED.fullmatch, named.missing):
        raise InvalidOption(f"The picture @{name} is gone: copy it again, and attach that.")
    return named


def pasted_files(text: str, folder: Path) -> list[str]:
    """Return mentions of the texts and images listed in a pasted text; empty for any other text.

    Terminals paste the paths of files dropped on them, quoted, escaped or as file:// addresses.
    """
    words = text.strip()
    if not words or len(words) > LONGEST_PATHS or "\0" in words:
        return []
    paths = [_path(words)]
    if paths == [None]:
        with suppress(ValueError):  # unbalanced quotation marks
            paths = [_path(word) for word in shlex.split(words)]
    return [_named(path, folder) for path in paths if path] if all(paths) else []


def mention_of(name: str, folder: Path) -> str:
    """Return the mention of a file or folder. Raises InvalidOption if there is none."""
    path = _existing(folder, name.strip("'\""))
    if path is None:
        raise InvalidOption(f"No file {name}.")
    return _named(path, folder)


def without_mention(text: str, name: str) -> str:
    """Return a text without the mentions of a file."""
    mentioned = "|".join(re.escape(f"@{each}") for each in (f'"{name}"', name))
    return re.sub(rf"(?:{mentioned})(?=[{re.escape(PUNCTUATION)}]*(?:\s|$)) ?", "", text)


def _possible(word: str) -> Iterator[str]:
    """Yield a word, then the word without more and more of the punctuation at its end."""
    yield word
    while word and word[-1] in PUNCTUATION:
        word = word[:-1]
        yield word


def _existing(folder: Path, name: str) -> Path | None:
    """Return the file or folder of this name; None if there is none.

    A folder of dots needs a slash at its end, as dots are punctuation, too.
    """
    with suppress(*NO_PATH):
        path = folder / Path(name).expanduser()
        is_written_out = bool(name.strip(".")) and name != "/"
        return path if path.is_file() or (path.is_dir() and is_written_out) else None
    return None


def _completed(parent: Path, path: Path) -> str:
    """Return a path as written after an @."""
    name, is_folder = str(parent / path.name), os.path.isdir(path)
    whole = f"{name}/" if is_folder else name
    if not re.search(r"\s", name):
        return whole
    return f'"{whole}' if is_folder else f'"{whole}"'


def _path(word: str) -> Path | None:
    """Return the text file or image at an absolute path; None if there is none."""
    with suppress(*NO_PATH, InvalidOption):
        if word.startswith("file://"):
            from urllib.request import url2pathname  # it imports an HTTP client

            word = url2pathname(urlsplit(word).path)
        path = Path(word).expanduser()
        if path.is_absolute() and path.is_file() and (_is_image(path) or _content(path, word)[0]):
            return path
    return None


def _named(path: Path, folder: Path) -> str:
    """Return the shortest mention of a file."""
    name = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


def _is_image(path: Path) -> bool:
    """Return whether a file begins as an image does."""
    with suppress(OSError), path.open("rb") as file:
        return bool(type_of(file.read(LONGEST_BEGINNING)))
    return False


def _content(path: Path, name: str) -> tuple[str, str]:
    """Return a file's text, and the name of its encoding, empty for UTF-8."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidOption(
                f"{name} is larger than {LARGEST_FILE // 1024} KiB. Attach a part of it."
            )
        return decoded(path.read_bytes())
    except ValueError:
        from specchat.images.picture import READ

        raise InvalidOption(f"{name} is neither text nor an image ({READ}).") from None
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}") from None

"""Files named with @ in a message: completed during typing, attached on sending."""

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from specchat.chat.conversation import Attachment
from specchat.chat.safe_text import harmless
from specchat.chat.text_files import decoded
from specchat.errors import InvalidOption

NAME = re.compile(r'(?<![^\s(\[{<"\'])@(?:"([^"\n]+)"|(\S+))')
"""A file name, in quotation marks if it contains spaces."""
PUNCTUATION = ".,;:!?)]}>\"'"
"""Characters that may follow a name in a sentence and do not belong to it."""
NO_PATH = (OSError, RuntimeError, ValueError)
"""Raised for impossible paths: too long, with a null byte, or in an unknown user's home."""
LARGEST_FILE = 512 * 1024
MOST_COMPLETIONS = 200
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


def named_files(
    text: str, folder: Path, known: Iterable[Attachment] = ()
) -> tuple[list[Attachment], list[str], dict[str, str]]:
    """Return the files that a message names, with contents, and the names that match no file.

    The third result has the encodings other than UTF-8 that files were read in, by name.

    `known` has earlier attachments, used for files deleted since. Raises InvalidOption
    for a file that is too large or not a text file.
    """
    before = {each.name: each for each in known}
    files: dict[str, Attachment] = {}
    missing, encodings = [], dict[str, str]()
    for quoted, plain in NAME.findall(text):
        for name in [quoted] if quoted else _possible(plain):
            path = _file(folder, name)
            if path is not None:
                content, encoding = _content(path, name)
                files[name] = Attachment(name, content)
                encodings |= {name: encoding} if encoding else {}
            elif name in before:
                files[name] = before[name]
            if name in files:
                break
        else:
            missing.append(quoted or plain.rstrip(PUNCTUATION) or plain)
    return list(files.values()), list(dict.fromkeys(missing)), encodings


def pasted_files(text: str, folder: Path) -> list[str]:
    """Return mentions of the text files listed in a pasted text; empty for any other text.

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


def _possible(word: str) -> Iterator[str]:
    """Yield a word, then the word without more and more of the punctuation at its end."""
    yield word
    while word and word[-1] in PUNCTUATION:
        word = word[:-1]
        yield word


def _file(folder: Path, name: str) -> Path | None:
    with suppress(*NO_PATH):
        path = folder / Path(name).expanduser()
        return path if name and path.is_file() else None
    return None


def _completed(parent: Path, path: Path) -> str:
    """Return a path as written after an @."""
    name, is_folder = str(parent / path.name), path.is_dir()
    whole = f"{name}/" if is_folder else name
    if not re.search(r"\s", name):
        return whole
    return f'"{whole}' if is_folder else f'"{whole}"'


def _path(word: str) -> Path | None:
    """Return the text file at an absolute path; None if there is none."""
    if word.startswith("file://"):
        from urllib.request import url2pathname  # it imports an HTTP client

        word = url2pathname(urlsplit(word).path)
    path = Path(word)
    with suppress(*NO_PATH, InvalidOption):
        path = path.expanduser()
        if path.is_absolute() and path.is_file() and _content(path, word)[0]:
            return path
    return None


def _named(path: Path, folder: Path) -> str:
    """Return the shortest mention of a file."""
    name = str(path.relative_to(folder) if path.is_relative_to(folder) else path)
    return f'@"{name}"' if re.search(r"\s", name) else f"@{name}"


def _content(path: Path, name: str) -> tuple[str, str]:
    """Return a file's text, and the name of its encoding, empty for UTF-8."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InvalidOption(
                f"{name} is larger than {LARGEST_FILE // 1024} KiB. Attach a part of it."
            )
        return decoded(path.read_bytes())
    except ValueError:
        raise InvalidOption(f"{name} is not a text file.") from None
    except OSError as error:
        raise InvalidOption(f"{name} cannot be read: {error.strerror}") from None

"""The text in bytes of any usual encoding, as files and pipes have them."""

import codecs
import re

from specchat.images.image import type_of

BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
UTF_16 = re.compile(rb"(?:[^\0]\0){4}|(?:\0[^\0]){4}")
"""A run of Latin letters in UTF-16, by which it is known without a mark."""
NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Control characters, with which a guess of the encoding is wrong."""
GUESSED = {"cp1252", "utf-16-le", "utf-16-be"}
LARGEST_FILE = 512 * 1024
"""The most bytes of a file to attach."""
NAMES = {"utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-16": "UTF-16", "utf-32": "UTF-32"}


def decoded(content: bytes) -> tuple[str, str]:
    """Return the text, without a byte order mark, and its encoding's name: empty for UTF-8.

    What is neither Unicode nor binary is taken for Windows-1252, which holds Latin-1. Raises
    ValueError for anything that is no text.
    """
    if type_of(content):  # cut, one could be taken for Windows-1252
        raise ValueError("no text")
    marked = (name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark))
    encoding = next(marked, "")
    if not encoding and (found := UTF_16.match(content)):
        encoding = "utf-16-be" if found[0].startswith(b"\0") else "utf-16-le"
    try:
        text = content.decode(encoding or "utf-8")
    except UnicodeDecodeError:
        encoding, text = "cp1252", content.decode("cp1252")
    if "\0" in text or (encoding in GUESSED and NO_TEXT.search(text)):
        raise ValueError("no text")
    names = {**NAMES, "cp1252": "Windows-1252 (Latin-1)"}
    return text.removeprefix("\ufeff"), names.get(encoding, "")

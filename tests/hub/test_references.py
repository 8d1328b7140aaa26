"""References: what a word of the user's names, and what it can never become."""

from __future__ import annotations

import pytest

from specchat.errors import InvalidOption
from specchat.hub.cache import pointer_path, repository_folder
from specchat.hub.names import parse_name
from specchat.hub.references import Reference, endpoint
from tables import table

COMMIT = "7c41481f57cb95916b40956ab2f0b139b296d974"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("Qwen/Qwen3-8B-GGUF/Q4.gguf", Reference("Qwen/Qwen3-8B-GGUF", "Q4.gguf")),
        ("a/b.c_d/folder/Q4.GGUF", Reference("a/b.c_d", "folder/Q4.GGUF")),
        ("hf.co/a/b/Q4.gguf", Reference("a/b", "Q4.gguf")),
        ("huggingface.co/a/b/blob/main/Q4.gguf", Reference("a/b", "Q4.gguf")),
        ("https://huggingface.co/a/b/resolve/main/x/Q4.gguf", Reference("a/b", "x/Q4.gguf")),
        (
            f"https://huggingface.co/a/b/blob/{COMMIT}/Q4.gguf?download=true#top",
            Reference("a/b", "Q4.gguf", COMMIT),
        ),
        (
            "https://hf.co/a/b/resolve/refs%2Fpr%2F1/Q%204.gguf",
            Reference("a/b", "Q 4.gguf", "refs/pr/1"),
        ),
        ("https://mirror.example/hub/a/b/resolve/v1/Q4.gguf", Reference("a/b", "Q4.gguf", "v1")),
    ],
)
def test_files_are_named_as_people_name_them(
    monkeypatch: pytest.MonkeyPatch, text: str, reference: Reference
) -> None:
    """By path, or by any address of the hub or of the mirror that HF_ENDPOINT names."""
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/hub/")

    assert parse_name(text).reference == reference


@table(
    "text",
    [
        "../../etc/passwd.gguf",
        "a/b/../c.gguf",
        "a/b/..%2f..%2fc.gguf/../x.gguf",
        "https://hf.co/a/b/resolve/main/%2e%2e/c.gguf",
        "https://hf.co/a/b/resolve/..%2F..%2Fx/c.gguf",
        "https://hf.co/a/b/resolve/main/x%2f..%2fc.gguf",
        "https://hf.co/a/b/resolve/main/x%00.gguf",
        "https://hf.co/a/b/resolve/main/C%3A/x.gguf",
        "https://hf.co/a%2f../b/resolve/main/x.gguf",
        "https://evil.example/a/b/resolve/main/c.gguf",
        "https://huggingface.co@evil.example/a/b/resolve/main/c.gguf",
        "https://huggingface.co.evil.example/a/b/resolve/main/c.gguf",
        "ftp://huggingface.co/a/b/resolve/main/c.gguf",
        "file:///a/b/c.gguf",
        "/a/b/c.gguf",
        "a\\b/c/d.gguf",
        "a/b/c\\d.gguf",
        "a/b/c:d.gguf",
        "a/b/ c.gguf",
        "a/b/c./d.gguf",
        "a/b//c.gguf",
        "a/b/~/\nc.gguf",
        "a--b/c/d.gguf",
        ".a/b/c.gguf",
        "a/b.git/c.gguf",
        "a/b/c.safetensors",
        "a/b/",
        "a/b",
        "a/",
        "/",
        "",
    ],
)
def test_names_the_hub_does_not_allow_are_refused(text: str) -> None:
    """The error is one line; no path can leave its folder."""
    with pytest.raises(InvalidOption) as raised:
        _ = parse_name(text).reference

    assert "\n" not in str(raised.value)


@table("fields", [{"size": 0}, {"size": "5"}, {"sha256": "A" * 64}, {"size": True}])
def test_a_pin_must_be_one(fields: dict[str, object]) -> None:
    """A size is a number of bytes, a sha256 has 64 digits."""
    with pytest.raises(ValueError, match=r"must be|not a sha256"):
        Reference("a/b", "c.gguf", **fields)  # type: ignore[arg-type]


def test_every_path_stays_in_its_repository() -> None:
    """However deep the file, its place lies below the repository's folder."""
    reference = Reference("a/b", "x/y/z.gguf", "refs/pr/1")

    assert repository_folder("a/b") in pointer_path(reference).resolve().parents


def test_parts_of_a_split_file() -> None:
    """The first comes first; only the one that was named keeps its pin."""
    named = Reference("a/b", "x/m-00002-of-00003.gguf", "main", 5, "0" * 64)

    assert [part.name[2:7] for part in named.parts] == ["00001", "00002", "00003"]
    assert [part.sha256 for part in named.parts] == [None, "0" * 64, None]
    assert Reference("a/b", "m.gguf").parts == (Reference("a/b", "m.gguf"),)


@pytest.mark.parametrize("value", ["", "https://mirror.example/"])
def test_the_endpoint_has_no_slash_at_its_end(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """An empty variable is none."""
    monkeypatch.setenv("HF_ENDPOINT", value)

    assert endpoint() == (value.rstrip("/") or "https://huggingface.co")

"""Names of the hub as people type and paste them."""

from __future__ import annotations

import unicodedata

import pytest

from specchat.errors import InvalidOption
from specchat.hub.names import HubName, is_hub_name, parse_name
from tables import table

REPO = "Org/Some-GGUF"


@table(
    ("text", "name"),
    [
        (REPO, HubName(REPO)),
        (f" {REPO}\n", HubName(REPO)),
        (f'"{REPO}"', HubName(REPO)),
        (f"<https://huggingface.co/{REPO}>", HubName(REPO)),
        (f"{REPO}/", HubName(REPO)),
        (f"{REPO}:Q4_K_M", HubName(REPO, quantisation="Q4_K_M")),
        (f"{REPO}:latest", HubName(REPO)),
        (f"hf.co/{REPO}:Q8_0", HubName(REPO, quantisation="Q8_0")),
        (f"HF.co/{REPO}", HubName(REPO)),
        (f"hf:{REPO}", HubName(REPO)),
        (f"hf://{REPO}/m.gguf", HubName(REPO, "m.gguf")),
        (f"https://huggingface.co/{REPO}", HubName(REPO)),
        (f"https:/huggingface.co/{REPO}", HubName(REPO)),  # as a path has it
        (f"https://huggingface.co/models/{REPO}", HubName(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main", HubName(REPO)),
        (f"https://huggingface.co/{REPO}/tree/v1/", HubName(REPO, revision="v1")),
        (f"https://huggingface.co/{REPO}/tree/main/Q4/x", HubName(REPO, folder="Q4/x")),
        (f"https://huggingface.co/{REPO}/discussions/3", HubName(REPO)),
        (f"https://huggingface.co/{REPO}?library=llama-cpp-python", HubName(REPO)),
        (f"https://huggingface.co/{REPO}?show_file_info=a%2Fm.gguf", HubName(REPO, "a/m.gguf")),
        (
            f"https://huggingface.co/{REPO}/tree/v1?show_file_info=m.gguf",
            HubName(REPO, "m.gguf", "v1"),
        ),
        (
            f"https://huggingface.co/{REPO}/blob/main/m.gguf?show_file_info=other.gguf",
            HubName(REPO, "m.gguf"),
        ),
        (f"https://huggingface.co/{REPO}/blob/main/caf%C3%A9.gguf", HubName(REPO, "café.gguf")),
        (f"https://huggingface.co/{REPO}/resolve/main", HubName(REPO)),
        (f"https://huggingface.co:443/{REPO}", HubName(REPO)),
        (f"HF:{REPO}", HubName(REPO)),
        (f"hf://models/{REPO}", HubName(REPO)),
        (f"{REPO}/my model (1).gguf", HubName(REPO, "my model (1).gguf")),
        (f"{REPO}/模型-Q4.gguf", HubName(REPO, "模型-Q4.gguf")),
        (unicodedata.normalize("NFD", f"{REPO}/café.gguf"), HubName(REPO, "café.gguf")),
    ],
)
def test_every_form_is_understood(text: str, name: HubName) -> None:
    """Paths, llama.cpp's and Ollama's form, pages of the hub, and what copying leaves around."""
    assert parse_name(text) == name
    assert is_hub_name(text.strip(' "<>\n'))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://ollama.com/library/llama3.2:1b", "`ollama pull llama3.2:1b` fetches it"),
        ("registry.ollama.ai/library/tiny", "`ollama pull tiny` fetches it"),
        ("https://example.org/a/b", "is not at https://huggingface.co: set HF_ENDPOINT"),
        ("a", "does not name a repository: write org/repo"),
        ("https://user:secret@huggingface.co/a/b", "https://huggingface.co/a/b' is not at"),
        ("https://[bad/x", "cannot be read: Invalid IPv6 URL"),
        ("https://hf.co/a/b?" + "x=1&" * 300, "cannot be read"),
        ("https://hf.co/spaces/org/repo", "is a page of the hub's spaces, not of a model"),
        ("https://hf.co/a/b/tree/x:y", "invalid Hugging Face revision name"),
        ("https://hf.co/a/b/tree/main/..", "invalid Hugging Face folder name"),
        ("a/b:Q4/c.gguf", "does not end in the name of a quantization"),
        ("a/b:../x", "invalid Hugging Face|does not end in"),
        ("a/b:", "does not end in"),
        ("a b/c", "invalid Hugging Face repository name"),
    ],
)
def test_what_is_no_name_of_the_hub_is_refused(
    text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says what to write."""
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    with pytest.raises(InvalidOption, match=words) as raised:
        parse_name(text)
    assert "\n" not in str(raised.value)


@table("text", ["/a/b/c.gguf", "./a/b.gguf", "../a/b", "~/a/b.gguf", "a/b.gguf"])
def test_a_path_is_no_name_of_the_hub(text: str) -> None:
    """What is a file's path is looked for on this machine alone."""
    assert not is_hub_name(text)


@table(
    "name",
    [
        HubName(REPO),
        HubName(REPO, quantisation="Q8_0"),
        HubName(REPO, "a/m.gguf"),
        HubName(REPO, "m.gguf", "refs/pr/1"),
        HubName(REPO, revision="v2"),
        HubName(REPO, folder="a/b"),
    ],
)
def test_a_name_is_written_as_it_can_be_typed_again(name: HubName) -> None:
    """With its revision and folder, if it has some."""
    assert parse_name(str(name)) == name


def test_a_file_is_wanted_where_one_is_needed() -> None:
    """The error says how to see the files."""
    with pytest.raises(InvalidOption, match=r"`specchat pull a/b:Q4` lists its files"):
        _ = parse_name("a/b:Q4").reference


@table(
    "file",
    [
        "x\u202egguf.gguf",
        "a\u200bb.gguf",
        "x\x1b[31m.gguf",
        "e\u0301" * 200 + ".gguf",
        "é" * 130 + ".gguf",
    ],
)
def test_names_that_could_deceive_or_are_too_long_are_refused(file: str) -> None:
    """Marks that turn text around, invisible ones, and more bytes than a file system takes."""
    with pytest.raises(InvalidOption):
        _ = parse_name(f"a/b/{file}").reference

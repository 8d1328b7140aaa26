"""Reads the name of a model's file: the model, its family, and its quantization."""

import re
from collections.abc import Collection

from specchat.gguf.draft_kinds import words_of_heads

QUANTISATION = re.compile(
    r"[-_.:](?:ud-|i1-)?((?:i?q\d\w*|tq\d\w*|bf16|fp?16|fp?32|mxfp4|nvfp4))(?=[-_.]|$)",
    re.IGNORECASE,
)
"""The quantization in a name, after a separator; "ud-" and "i1-" are prefixes of publishers."""
PART = re.compile(r"-\d{5}-of-\d{5}$")
"""The number of a file that is one of several."""
WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?[bm]?")
OF_DRAFTS = re.compile(
    r"(?:throughput|(?:long|short)[-_.]?context"
    r"|(?<=[-_.])b(?:lock|s)?[-_]?(?:size)?[-_]?\d+(?=[-_.]|$))(?:[-_.]v\d+(?:\.\d+)*)?"
)
"""The words in the name of a head that are not its target's: the size of its blocks, what it was
made for, and its version behind these."""
INSTRUCT_WORDS = ("instruct", "it", "chat")
COMMON_WORDS = frozenset(
    {
        *("gguf", "ggml", "of", "latest", "head", "only", *INSTRUCT_WORDS),
        *("qat", "ud", "xl", "meta", "google", "specforge", "sglang"),
        *("speculator", "draft", "drafter"),
    }
)
"""Words that two files of one model need not share."""
INSTRUCT = re.compile(rf"(?<![a-z])(?:{'|'.join(INSTRUCT_WORDS)})(?![a-z])")
BASE = re.compile(r"(?<![a-z])(?:base|pt|pretrain(?:ed)?)(?![a-z]|-br)|:\d[\w.]*-text(?![a-z])")
"""Words of models that only continue texts; the last is Ollama's, "8b-text"."""


def model_title(name: str) -> str:
    """Return the name of a model's file without folders, extension and quantization."""
    stem = _stem(name)
    return QUANTISATION.sub("", stem) or stem


def quantisation_in(name: str) -> str:
    """Return the quantization that a file's name states, such as "Q4_K_M"; empty without one."""
    match = QUANTISATION.search(_stem(name))
    return match[1].upper() if match else ""


def states(name: str, quantisation: str) -> bool:
    """Return True if a file's name states a quantization, or ends in those words."""
    wanted, stem = quantisation.lower(), _stem(name).lower()
    is_part = re.search(rf"(^|[-_.]){re.escape(wanted)}([-_.]|$)", stem)
    return quantisation_in(name).lower() == wanted or bool(is_part)


def is_called(name: str, quantisation: str) -> bool:
    """Return True if a file is called just by a quantization, which no other file's name has too.

    "q4_k" is also a part of "x-q4_k_m", and "q4_k_xl" of "x-ud-q4_k_xl".
    """
    wanted, stem = quantisation.lower(), _stem(name).lower()
    return stem == wanted or bool(re.search(rf"(?<!ud)[-_.]{re.escape(wanted)}$", stem))


def model_words(*names: str) -> frozenset[str]:
    """Return the words in names that tell a model from others: its family, version and size."""
    words: set[str] = set()
    for name in names:
        text = PART.sub("", name.lower().removesuffix(".gguf"))
        text, num_of_heads = words_of_heads().subn("", text)
        text = OF_DRAFTS.sub("", text) if num_of_heads else text
        text = QUANTISATION.sub("", text)
        words |= set(WORD.findall(text))
    return frozenset(words - COMMON_WORDS)


def are_trained_alike(head: Collection[str], target: Collection[str]) -> bool:
    """Return False if one of them is for a base model, and the other for one trained to answer.

    Both are given by all their names; that of a repository counts, that of its owner does not.
    Families mark either their base models or the others. So a name without a mark says nothing of a
    head, but of a target: beside one marked as base it is trained, and it is a base model beside
    one marked as trained, unless it has more words, as a fine-tuned version has.
    """
    of_head, of_target = trainings = _training(head), _training(target)
    if "both" in trainings:
        return True
    if "base" in trainings:
        return of_head == of_target
    if of_head == "instruct" and not of_target:
        words, wanted = (
            [model_words(name.rpartition("/")[2]) for name in names] for names in (head, target)
        )
        return not any(each in wanted for each in words if each)
    return True


def _training(names: Collection[str]) -> str:
    """Return what names say of a model's training: "base", "instruct", "both", or nothing."""
    text = "\n".join(re.sub(r"^[^/]*/", "", name.lower()) for name in names)
    is_base, is_instruct = bool(BASE.search(text)), bool(INSTRUCT.search(text))
    if is_base and is_instruct:
        return "both"
    return "base" if is_base else "instruct" if is_instruct else ""


def _stem(name: str) -> str:
    file = name.rpartition("/")[2]
    return PART.sub("", file[: -len(".gguf")] if file.lower().endswith(".gguf") else file)

"""Reads the name of a model's file: the model, its family, and its quantization."""

import re

QUANTISATION = re.compile(
    r"[-_.:](?:ud-)?((?:i?q\d\w*|tq\d\w*|bf16|f16|f32|mxfp4|nvfp4))(?=[-_.]|$)", re.IGNORECASE
)
"""The quantization in a name, after a separator; "ud-" is Unsloth's prefix."""
PART = re.compile(r"-\d{5}-of-\d{5}$")
"""The number of a file that is one of several."""
WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?[bm]?")
OF_HEADS = re.compile(
    r"eagle-?3?|d-?flash-?2?|dspark|mtp|nextn|assistant|speculator|draft(?:er)?|block-?\d+",
    re.IGNORECASE,
)
"""The words in the name of a prediction head that are not its target's."""
COMMON_WORDS = frozenset(
    {
        *("gguf", "ggml", "of", "latest", "head", "only", "instruct", "it", "chat"),
        *("qat", "ud", "xl", "meta", "google"),
    }
)
"""Words that two files of one model need not share."""


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
        text = name.lower().removesuffix(".gguf")
        words |= set(WORD.findall(QUANTISATION.sub("", PART.sub("", OF_HEADS.sub("", text)))))
    return frozenset(words - COMMON_WORDS)


def _stem(name: str) -> str:
    file = name.rpartition("/")[2]
    return PART.sub("", file[: -len(".gguf")] if file.lower().endswith(".gguf") else file)

"""Facts about vocabularies, and the rule that decides whether a draft's fits a target's."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from specchat.errors import ModelWontLoad
from specchat.gguf.cursor import LENGTH, Cursor, Damaged
from specchat.gguf.header import Header, LongArray
from specchat.gguf.reader import open_model

LARGEST_SIZE_DIFFERENCE = 128
FIRST_COMPARED_TOKEN = 5
TOKENS = "tokenizer.ggml.tokens"  # a key, no secret
KINDS = {
    "llama": "SPM",
    "gpt2": "BPE",
    "hybriddna": "BPE",
    "whitespace": "BPE",
    "gemma4": "BPE",
    "bert": "WPM",
    "t5": "UGM",
    "rwkv": "RWKV",
    "plamo2": "PLaMo",
}
"""llama.cpp's kind of a tokenizer by its name; models without one have "none"."""
DEFAULT_ENDS = {"SPM": (1, 2), "BPE": (11, 11), "WPM": (101, None), "PLaMo": (1, 2)}
"""The BOS and EOS tokens of a kind if the file names none."""
ADDS_BOS = frozenset(
    {
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        *("lfm2", "jina-v5-nano", "tekken", "chameleon"),
    }
)
"""The BPE pre-tokenizers that add BOS to texts unless the file says otherwise."""
ALWAYS_ADDS_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})
"""The pre-tokenizers that add BOS whatever the file says."""


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """The facts by which two vocabularies are compared.

    `kind` is llama.cpp's, `model` and `pre` are the names in the file. `bos` and `eos` are None if
    they are not added to texts. Equal digests mean the same size and the same texts from token 5
    on, which is all a draft needs.
    """

    kind: str
    size: int
    bos: int | None
    eos: int | None
    model: str = ""
    pre: str = ""
    digest: str = ""

    @property
    def has_texts(self) -> bool:
        """Whether its tokens stand for texts; without them nothing can be compared."""
        return self.size > 0 and self.kind != "none"


def vocabulary_of(header: Header) -> VocabularyFacts:
    """Return the facts of a model's vocabulary. Raises ModelWontLoad if the file changed."""
    model = header.text("tokenizer.ggml.model") or "none"
    pre = model if model == "gemma4" else header.text("tokenizer.ggml.pre")
    kind = "none" if model == "no_vocab" else KINDS.get(model, model)
    size = _num_tokens(header)
    adds_bos = kind in {"SPM", "WPM"} or (kind == "BPE" and pre in ADDS_BOS | ALWAYS_ADDS_BOS)
    digest = blake2b(LENGTH.pack(size) + _texts(header, size), digest_size=16)
    return VocabularyFacts(
        model=model,
        pre=pre,
        kind=kind,
        size=size,
        bos=_added(header, "bos", kind, adds=adds_bos),
        eos=_added(header, "eos", kind, adds=kind == "UGM"),
        digest=digest.hexdigest(),
    )


def misfit(target: Header, draft: Header) -> str | None:
    """Return why a draft model does not fit a target by their files, None if it does.

    llama.cpp's own data decides once both are loaded.
    """
    ours, theirs = vocabulary_of(target), vocabulary_of(draft)
    if ours.kind == theirs.kind and not theirs.has_texts:
        return "it has no vocabulary"

    def first_difference(count: int) -> str | None:
        if ours.digest == theirs.digest:
            return None
        return _difference(_texts(target, count), _texts(draft, count))

    return mismatch(ours, theirs, first_difference)


def mismatch(
    target: VocabularyFacts, draft: VocabularyFacts, first_difference: Callable[[int], str | None]
) -> str | None:
    """Return the rule that a draft's vocabulary breaks, None if it fits the target's.

    llama.cpp's rule for speculation (common/speculative.cpp): the same kind, the same added BOS and
    EOS, sizes at most 128 apart, and the same text for every token from id 5 on. The first of these
    texts that differs, below a number of tokens, is what `first_difference` returns.
    """
    if target.kind != draft.kind:
        return f"its tokenizer is {draft.kind}, the target's is {target.kind}"
    for name, ours, theirs in (
        ("beginning", target.bos, draft.bos),
        ("end", target.eos, draft.eos),
    ):
        if ours != theirs:
            return f"its {name}-of-text token is {theirs}, the target's is {ours}"
    if abs(target.size - draft.size) > LARGEST_SIZE_DIFFERENCE:
        return (
            f"it has {draft.size} tokens, the target {target.size}: more than"
            f" {LARGEST_SIZE_DIFFERENCE} apart"
        )
    return first_difference(min(target.size, draft.size))


def _added(header: Header, name: str, kind: str, *, adds: bool) -> int | None:
    """Return the token that is added to texts, None if there is none."""
    key = f"tokenizer.ggml.add_{name}_token"
    is_named = header.metadata.get(key, adds) is True
    names = {header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")}
    is_certain = name == "bos" and not ALWAYS_ADDS_BOS.isdisjoint(names)
    if kind == "none" or not (is_named or is_certain):
        return None
    token = header.number(f"tokenizer.ggml.{name}_token_id", -1)
    default = DEFAULT_ENDS.get(kind, (None, None))[name == "eos"]
    return token if 0 <= token < _num_tokens(header) else default


def _num_tokens(header: Header) -> int:
    tokens = header.metadata.get(TOKENS)
    if isinstance(tokens, LongArray):
        return tokens.length
    return len(tokens) if isinstance(tokens, tuple) else max(0, header.own("vocab_size"))


def _texts(header: Header, count: int) -> bytes:
    """Return the texts of the first `count` tokens from id 5 on, each after its length."""
    tokens = header.metadata.get(TOKENS)
    if isinstance(tokens, tuple):
        texts = [str(token).encode() for token in tokens[FIRST_COMPARED_TOKEN:count]]
        return b"".join(LENGTH.pack(len(text)) + text for text in texts)
    if not isinstance(tokens, LongArray) or tokens.kind != "texts":
        return b""
    num_skipped = min(FIRST_COMPARED_TOKEN, count)
    with open_model(header.path) as file:
        cursor = Cursor(file, tokens.place)
        try:
            cursor.skip_texts(num_skipped)
            return cursor.raw_texts(count - num_skipped)
        except Damaged:
            raise ModelWontLoad(f"{header.path} changed while it was read: try again") from None


def _difference(ours: bytes, theirs: bytes) -> str | None:
    """Return the first token whose text differs, among as many tokens of both."""
    place, token = 0, FIRST_COMPARED_TOKEN
    while place < min(len(ours), len(theirs)):
        mine, other = _text_at(ours, place), _text_at(theirs, place)
        if mine != other:
            return f"token {token} is {other!r} in it and {mine!r} in the target"
        place += LENGTH.size + len(mine)
        token += 1
    return None


def _text_at(data: bytes, place: int) -> bytes:
    (length,) = LENGTH.unpack_from(data, place)
    begin: int = place + LENGTH.size
    return data[begin : begin + length]

"""Facts about vocabularies, and the rule that decides whether a draft's fits a target's."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from specchat.gguf.cursor import UINT64
from specchat.gguf.header import Header, LongArray
from specchat.gguf.reader import opened

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
    they are not added to texts. Equal digests mean the same size and the same token texts from id 5
    on, which is all a draft needs.
    """

    kind: str
    size: int
    bos: int | None
    eos: int | None
    model: str = ""
    pre: str = ""
    digest: str = ""


def vocabulary_of(header: Header) -> VocabularyFacts:
    """Return a vocabulary's facts. Raises as `read_header` does if the file has changed."""
    model = header.text("tokenizer.ggml.model") or "none"
    pre = model if model == "gemma4" else header.text("tokenizer.ggml.pre")
    kind = "none" if model == "no_vocab" else KINDS.get(model, model)
    size = num_tokens(header)
    adds_bos = kind in {"SPM", "WPM"} or (kind == "BPE" and pre in ADDS_BOS | ALWAYS_ADDS_BOS)
    texts = _texts(header, FIRST_COMPARED_TOKEN)
    digest = blake2b(UINT64.pack(size) + texts, digest_size=16)
    return VocabularyFacts(
        model=model,
        pre=pre,
        kind=kind,
        size=size,
        bos=_added(header, "bos", kind, adds=adds_bos),
        eos=_added(header, "eos", kind, adds=kind == "UGM"),
        digest=digest.hexdigest(),
    )


def lacks_pre_tokenizer(header: Header) -> bool:
    """Return True for a BPE file that does not name its pre-tokenizer.

    llama.cpp then guesses one, and may split text into other tokens than the model was trained on.
    """
    model = header.text("tokenizer.ggml.model")
    is_named = model == "gemma4" or bool(header.text("tokenizer.ggml.pre"))
    return KINDS.get(model) == "BPE" and not is_named


def why_another_model(
    target: Header, head: Header, facts: Iterable[tuple[str, object, object]]
) -> str | None:
    """Return the first fact showing that a head belongs to another target, None if there is none.

    `facts` are a name, the target's value and the value the head expects; vocabularies come last.
    Of these only the tokens count: a head splits no text, so other files of its target may name
    another pre-tokenizer, or other tokens to add.
    """
    for what, of_target, of_head in facts:
        if of_target != of_head:
            return f"its {what} is {of_head}, the target's is {of_target}"
    is_same = vocabulary_of(target).digest == vocabulary_of(head).digest
    return None if is_same else "its vocabulary is not the target's"


def with_vocabulary_size(header: Header) -> Header:
    """Return the header of a file without embeddings with the number of tokens added."""
    size = {f"{header.architecture}.vocab_size": num_tokens(header)}
    return replace(header, metadata={**header.metadata, **size})


def mismatch(
    target: VocabularyFacts, draft: VocabularyFacts, texts: Iterable[tuple[bytes, bytes]]
) -> str | None:
    """Return the rule that a draft's vocabulary breaks, None if it fits the target's.

    llama.cpp's rule for speculation (common/speculative.cpp): the same kind, the same added BOS and
    EOS, sizes at most 128 apart, and the same text for every token from id 5 on. `texts` are pairs
    of token texts, the target's first.
    """
    if target.kind != draft.kind:
        return f"its tokenizer is {draft.kind}, the target's is {target.kind}"
    added = (("beginning", target.bos, draft.bos), ("end", target.eos, draft.eos))
    for name, of_target, of_draft in added:
        if of_target != of_draft:
            return f"its {name}-of-text token is {of_draft}, the target's is {of_target}"
    if abs(target.size - draft.size) > LARGEST_SIZE_DIFFERENCE:
        return (
            f"it has {draft.size} tokens, the target {target.size}: more than"
            f" {LARGEST_SIZE_DIFFERENCE} apart"
        )
    differences = (
        f"token {token} is {of_draft!r} in it and {of_target!r} in the target"
        for token, (of_target, of_draft) in enumerate(texts, FIRST_COMPARED_TOKEN)
        if of_target != of_draft
    )
    return next(differences, None)


def token_texts(header: Header, first: int = FIRST_COMPARED_TOKEN) -> Iterator[bytes]:
    """Yield a model's token texts from id `first` on. Raises as `read_header` does."""
    data, position = _texts(header, first), 0
    while position < len(data):
        (length,) = UINT64.unpack_from(data, position)
        position += UINT64.size + length
        yield data[position - length : position]


def _added(header: Header, name: str, kind: str, *, adds: bool) -> int | None:
    """Return the id of the token that is added to texts, None if none is."""
    key = f"tokenizer.ggml.add_{name}_token"
    is_named = header.metadata.get(key, adds) is True
    names = {header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")}
    is_certain = name == "bos" and not ALWAYS_ADDS_BOS.isdisjoint(names)
    if kind == "none" or not (is_named or is_certain):
        return None
    token = header.number(f"tokenizer.ggml.{name}_token_id", -1)
    default = DEFAULT_ENDS.get(kind, (None, None))[name == "eos"]
    return token if 0 <= token < num_tokens(header) else default


def num_tokens(header: Header) -> int:
    """Return the number of tokens in a model's vocabulary, 0 if unknown."""
    tokens = header.metadata.get(TOKENS)
    if isinstance(tokens, LongArray):
        return tokens.length
    return len(tokens) if isinstance(tokens, tuple) else max(0, header.own("vocab_size"))


def _texts(header: Header, first: int) -> bytes:
    """Return the token texts from id `first` on, each after its length."""
    tokens = header.metadata.get(TOKENS)
    if isinstance(tokens, tuple):
        texts = [str(token).encode() for token in tokens[first:]]
        return b"".join(UINT64.pack(len(text)) + text for text in texts)
    if not isinstance(tokens, LongArray) or tokens.kind != "texts":
        return b""
    num_skipped = min(first, tokens.length)
    with opened(header.path, tokens.position) as cursor:
        cursor.raw_texts(num_skipped)
        return cursor.raw_texts(tokens.length - num_skipped)

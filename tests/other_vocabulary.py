"""A copy of a GGUF model with another vocabulary: permuted, and a known part replaced."""

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, TokenType
from numpy.typing import NDArray

NAMES = ("tokens", "scores", "token_type")
SPECIAL = ("bos", "eos", "eot", "unknown", "padding", "separator", "eom")
BY_TOKEN = ("token_embd.weight", "output.weight", "output.bias")
"""Tensors with a row for each token."""
Ids = NDArray[np.int64]


def key_of(name: str) -> str:
    """Return the key of a fact about the tokenizer."""
    return f"tokenizer.ggml.{name}"


def replaced_tokens(reader: GGUFReader, share: float, seed: int | None) -> list[int]:
    """Return a share of all tokens, of those that are made of others by a merge.

    They are chosen at random; without a seed, the rarest are taken, which the last merges make.
    """
    texts = list(reader.fields[key_of("tokens")].contents())
    types = reader.fields[key_of("token_type")].contents()
    numbers = {text: token for token, text in enumerate(texts)}
    made = [merge.replace(" ", "") for merge in reader.fields[key_of("merges")].contents()]
    found = dict.fromkeys(numbers[text] for text in made if text in numbers)
    candidates = [token for token in found if types[token] == TokenType.NORMAL]
    count = min(round(share * len(texts)), len(candidates))
    if seed is None:
        return candidates[len(candidates) - count :]
    generator = np.random.default_rng(seed)
    return [int(token) for token in generator.choice(candidates, count, replace=False)]


def changed(reader: GGUFReader, order: Ids, replaced: list[int], renamed: str) -> dict[str, Any]:
    """Return the metadata of the copy, whose token n is the original's `order[n]`."""
    facts = {key: field.contents() for key, field in reader.fields.items()}
    texts = list(facts[key_of("tokens")])
    gone = {texts[token] for token in replaced}
    for token in replaced:
        texts[token] = f"Ġ#{token}#"
    if renamed:
        types = facts[key_of("token_type")]
        texts = [
            text.replace("<", f"<{renamed}") if kind == TokenType.CONTROL else text
            for text, kind in zip(texts, types, strict=True)
        ]
        facts["tokenizer.chat_template"] = facts.get("tokenizer.chat_template", "").replace(
            "<|", f"<{renamed}|"
        )
    facts[key_of("tokens")] = texts
    for name in NAMES:
        if key_of(name) in facts:
            values = facts[key_of(name)]
            facts[key_of(name)] = [values[token] for token in order]
    facts[key_of("merges")] = [
        merge
        for merge in facts[key_of("merges")]
        if gone.isdisjoint({*merge.split(" "), merge.replace(" ", "")})
    ]
    place = np.argsort(order)
    for name in SPECIAL:
        if (key := key_of(f"{name}_token_id")) in facts:
            facts[key] = int(place[facts[key]])
    return facts


def write_copy(
    source: Path, path: Path, share: float = 0.1, seed: int | None = None, renamed: str = ""
) -> int:
    """Write the copy; return the number of tokens replaced.

    With `renamed`, the names of control tokens are others, too.
    """
    reader = GGUFReader(source)
    size = len(reader.fields[key_of("tokens")].data)
    order = np.random.default_rng(0).permutation(size)
    replaced = replaced_tokens(reader, share, seed)
    facts = changed(reader, order, replaced, renamed)
    writer = GGUFWriter(path, facts["general.architecture"])
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, *of = field.types
        writer.add_key_value(key, facts[key], kind, of[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        data = tensor.data[order] if tensor.name in BY_TOKEN else tensor.data
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(replaced)

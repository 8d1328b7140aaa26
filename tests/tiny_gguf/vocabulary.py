"""A byte-level BPE vocabulary: control tokens, all 256 bytes, a few merges, then filler words."""

from dataclasses import dataclass

import gguf

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (
    *("t h", "i n", "e r", "a n", "r e", "o n", "Ġ t", "Ġ a", "Ġ s", "o u", "l l", "Ċ Ċ"),
    *("th e", "Ġ the", "in g", "an d", "Ġ and"),
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the tokenizer of a tiny model holds.

    `size` is the number of tokens, at least 280. `changed_token` gets another text (give an id of
    at least 5 to make a draft unfit). `eos` is the end-of-turn token's id, 2 (`<|im_end|>`) unless
    told. `tokenizer=False` writes a model without a tokenizer, of this size.
    """

    size: int = 320
    changed_token: int | None = None
    eos: int = 2
    tokenizer: bool = True
    chat_template: str | None = CHAT_TEMPLATE


def byte_characters() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    stand_ins = {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    return [stand_ins.get(byte, chr(byte)) for byte in range(256)]


def token_texts(vocabulary: Vocabulary) -> list[str]:
    """Every token's text as the file stores it, in the order of the ids."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    known = [*CONTROLS, *byte_characters(), *merged]
    if vocabulary.size < len(known):
        raise ValueError(f"a vocabulary needs at least {len(known)} tokens, not {vocabulary.size}")
    texts = known + [f"Ġw{number}" for number in range(vocabulary.size - len(known))]
    if vocabulary.changed_token is not None:
        texts[vocabulary.changed_token] = "Ġchanged"
    return texts


def add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    """Write the tokenizer's keys, or the bare size for a model without a tokenizer."""
    writer.add_vocab_size(vocabulary.size)
    if not vocabulary.tokenizer:
        writer.add_tokenizer_model("none")
        return
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    texts = token_texts(vocabulary)
    writer.add_token_list(texts)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if text in CONTROLS else gguf.TokenType.NORMAL for text in texts]
    )
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(vocabulary.eos)
    writer.add_eot_token_id(vocabulary.eos)
    writer.add_add_bos_token(False)
    if vocabulary.chat_template is not None:
        writer.add_chat_template(vocabulary.chat_template)

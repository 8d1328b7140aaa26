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
    set. `tokenizer=False` writes a model without a tokenizer, of this size. `sentencepiece=True`
    writes another kind, with the same control tokens: it puts a space before a text. Each filler
    word of byte pairs ends in one of `endings`, in turn. The last ones are control tokens if there
    are `markers`. Old files name no `pre_tokenizer`.
    """

    size: int = 320
    changed_token: int | None = None
    eos: int = 2
    tokenizer: bool = True
    chat_template: str | None = CHAT_TEMPLATE
    sentencepiece: bool = False
    endings: tuple[str, ...] = ("",)
    markers: tuple[str, ...] = ()
    pre_tokenizer: str | None = "gpt-2"


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
    stand_ins, endings = byte_characters(), vocabulary.endings
    written = ["".join(stand_ins[byte] for byte in ending.encode()) for ending in endings]
    numbers = range(vocabulary.size - len(known))
    texts = known + [f"Ġw{number}{written[number % len(written)]}" for number in numbers]
    if vocabulary.markers:
        texts[-len(vocabulary.markers) :] = vocabulary.markers
    if vocabulary.changed_token is not None:
        texts[vocabulary.changed_token] = "Ġchanged"
    return texts


def add_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    """Write the tokenizer's keys, or the bare size for a model without a tokenizer."""
    writer.add_vocab_size(vocabulary.size)
    if not vocabulary.tokenizer:
        writer.add_tokenizer_model("none")
        return
    if vocabulary.sentencepiece:
        _add_sentencepiece(writer, vocabulary.size)
    else:
        controls = {*CONTROLS, *vocabulary.markers}
        _add_byte_pairs(writer, token_texts(vocabulary), controls, vocabulary.pre_tokenizer)
    writer.add_eos_token_id(vocabulary.eos)
    writer.add_eot_token_id(vocabulary.eos)
    writer.add_add_bos_token(False)
    if vocabulary.chat_template is not None:
        writer.add_chat_template(vocabulary.chat_template)


def _add_byte_pairs(
    writer: gguf.GGUFWriter, texts: list[str], controls: set[str], pre: str | None
) -> None:
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if text in controls else gguf.TokenType.NORMAL for text in texts]
    )
    writer.add_token_merges(list(MERGES))


def _add_sentencepiece(writer: gguf.GGUFWriter, size: int) -> None:
    """Write control tokens, all bytes, a space, the letters, and filler words."""
    letters = [f"{chr(code)}" for code in range(ord("a"), ord("z") + 1)]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    texts = [*CONTROLS, *bytes_, "\u2581", *letters]
    texts += [f"\u2581w{number}" for number in range(size - len(texts))]
    kinds = [gguf.TokenType.CONTROL] * len(CONTROLS) + [gguf.TokenType.BYTE] * len(bytes_)
    kinds += [gguf.TokenType.NORMAL] * (size - len(kinds))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_scores([-float(place) for place in range(size)])
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)

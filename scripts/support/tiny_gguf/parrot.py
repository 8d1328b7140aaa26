"""Parrots: tiny llamas that utter one fixed sequence of tokens after any prompt.

A token's embedding says which piece of the sequence it is, or that it is none of them. Attention
heads copy that of the tokens before it, one head for each step back; the output matrix, found by
least squares, leads from these to the piece that follows. So pieces may repeat where the few before
them differ, and the number of heads is the smallest that keeps all places of the sequence apart.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import TypeAlias

import gguf
import numpy as np
from numpy.typing import NDArray

from scripts.support.tiny_gguf.vocabulary import CHAT_TEMPLATE, byte_characters
from scripts.support.tiny_gguf.weights import Weights

Piece: TypeAlias = str | bytes
"""One token: a text, or bytes that may be part of a character."""

CHATML_MARKS = ("<|im_start|>", "<|im_end|>")
NO_MERGES = ("Ā ā",)
"""llama.cpp wants a merge: this one is of bytes that no text has."""
MAX_HEADS = 16
LOGIT = 50.0
"""The logit of the piece that follows; all others are near 0."""
SCORE = 60.0
"""By how much the right place to attend to exceeds the one beside it."""
TOLERANCE = 0.1
NUM_TURNS = 32
ROPE_BASE = 10.0
NUM_RANDOM = 8
BLANKS: tuple[Piece, ...] = ("\n", " ", b"\n", b" ")


@dataclass(frozen=True, slots=True)
class Words:
    """What a parrot's tokenizer holds beside the pieces and all bytes.

    `control` and `user` are special tokens, found in a prompt by their names; `normal` are further
    tokens. Those in `whole` are found in any text, as a real tokenizer finds its words: a grammar
    forces them where it forces their text. `pre` None leaves its key out. `merges` are pairs that a
    prompt's bytes are merged by.
    """

    control: tuple[str, ...] = CHATML_MARKS
    user: tuple[str, ...] = ()
    normal: tuple[Piece, ...] = ()
    whole: tuple[Piece, ...] = ()
    template: str | None = CHAT_TEMPLATE
    eos: str = "<|im_end|>"
    bos: str | None = None
    pre: str | None = "gpt-2"
    add_bos: bool = False
    add_eos: bool = False
    merges: tuple[str, ...] = NO_MERGES
    sentencepiece: bool = False


def write_parrot(
    path: Path,
    pieces: Sequence[Piece],
    words: Words | None = None,
    *,
    after: Sequence[Piece] = (),
    others: Sequence[Sequence[Piece]] = (),
    loop: bool = False,
    context_length: int = 4096,
    name: str = "parrot",
) -> Path:
    """Write a parrot of `pieces` to `path`, and return it.

    A prompt ends in `after`, or in a token that is not in the sequence (a line break or a space may
    follow). After the last piece the model repeats it, unless that ends the answer; with `loop` it
    begins again. Each of the `others` is uttered after a prompt that ends in its first piece, and
    holds its own end. Raises ValueError if the sequences repeat themselves so much that their
    places cannot be kept apart.
    """
    words = words or Words()
    every = [*pieces, *chain.from_iterable(others)]
    texts, kinds = _vocabulary(every, words)
    places = {text: place for place, text in enumerate(texts)}
    ids = [places[_stored(piece, words)] for piece in every]
    known = {token: place for place, token in enumerate(dict.fromkeys(ids))}

    def known_among(given: Iterable[Piece]) -> list[int]:
        return [known.get(places.get(_stored(piece, words), -1), len(known)) for piece in given]

    blanks = [piece for piece in BLANKS if piece in pieces[1:] and piece != pieces[0]]
    prompts: list[Sequence[Piece]] = [after] if after else [(), *([blank] for blank in blanks)]
    ends = [known_among(each) for each in prompts]
    further = [known_among(each) for each in others]
    weights = _weights(known_among(pieces), ends, further, loop=loop)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(context_length)
    _add_shape(writer, weights, len(texts))
    _add_words(writer, words, texts, kinds)
    for key, value in _tensors(weights, list(known), len(texts)).items():
        writer.add_tensor(f"{key}.weight", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def ids_of(wanted: Iterable[Piece], pieces: Sequence[Piece], words: Words) -> list[int]:
    """Return the token ids that pieces have in a parrot of `pieces` and `words`."""
    texts, _ = _vocabulary(pieces, words)
    places = {text: place for place, text in enumerate(texts)}
    return [places[_stored(piece, words)] for piece in wanted]


def pieces_of(text: str, marks: Iterable[str] = ()) -> list[Piece]:
    """Cut a text into words, each mark one piece; words that were there are joined to the next."""
    pieces: list[Piece] = []
    for part in _parts(text, marks):
        if part in marks:
            pieces.append(part)
            continue
        begun = ""
        for word in re.findall(r"\s*\S+|\s+", part):
            begun += word
            if begun not in pieces:
                pieces.append(begun)
                begun = ""
        pieces += [begun] if begun else []
    return pieces


def bytes_of(text: str, marks: Iterable[str] = ()) -> list[Piece]:
    """Cut a text into bytes, each mark one piece."""
    pieces: list[Piece] = []
    for part in _parts(text, marks):
        pieces += [part] if part in marks else [bytes([byte]) for byte in part.encode()]
    return pieces


def _parts(text: str, marks: Iterable[str]) -> list[str]:
    names = sorted(marks, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]
    return [part for part in parts if part]


def _stored(piece: Piece, words: Words) -> str:
    """Return a piece as the file stores it."""
    if isinstance(piece, str) and piece in (*words.control, *words.user, *words.whole):
        return piece
    if words.sentencepiece:
        if isinstance(piece, bytes):
            return f"<0x{piece[0]:02X}>"
        return piece.replace(" ", "\u2581")
    stand_ins = byte_characters()
    data = piece.encode() if isinstance(piece, str) else piece
    return "".join(stand_ins[byte] for byte in data)


def _vocabulary(
    pieces: Sequence[Piece], words: Words
) -> tuple[list[str], dict[str, gguf.TokenType]]:
    """Return the tokens' texts in the order of the ids, and the kinds of those not NORMAL."""
    kinds = dict.fromkeys(words.control, gguf.TokenType.CONTROL)
    whole = [piece for piece in words.whole if isinstance(piece, str)]
    kinds |= dict.fromkeys([*words.user, *whole], gguf.TokenType.USER_DEFINED)
    kinds |= dict.fromkeys(words.control, gguf.TokenType.CONTROL)
    if words.sentencepiece:
        bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
        kinds |= dict.fromkeys(bytes_, gguf.TokenType.BYTE)
    else:
        bytes_ = [*byte_characters()]
        if words.merges != NO_MERGES:
            bytes_ += [merge.replace(" ", "") for merge in words.merges]
    others = [_stored(piece, words) for piece in (*words.normal, *pieces)]
    return list(dict.fromkeys([*words.control, *words.user, *bytes_, *others])), kinds


def _add_words(
    writer: gguf.GGUFWriter, words: Words, texts: list[str], kinds: dict[str, gguf.TokenType]
) -> None:
    writer.add_tokenizer_model("llama" if words.sentencepiece else "gpt2")
    if words.pre is not None:
        writer.add_tokenizer_pre(words.pre)
    writer.add_token_list(texts)
    writer.add_token_types([kinds.get(text, gguf.TokenType.NORMAL) for text in texts])
    if words.sentencepiece:
        writer.add_token_scores([-float(place) for place in range(len(texts))])
        writer.add_unk_token_id(0)
    else:
        writer.add_token_merges(list(words.merges))
    writer.add_eos_token_id(texts.index(_stored(words.eos, words)))
    if words.bos is not None:
        writer.add_bos_token_id(texts.index(_stored(words.bos, words)))
    writer.add_add_bos_token(words.add_bos)
    writer.add_add_eos_token(words.add_eos)
    if words.template is not None:
        writer.add_chat_template(words.template)


def _weights(
    sequence: list[int], ends: list[list[int]], others: list[list[int]], *, loop: bool
) -> Weights:
    """Return the share that each piece, each step back, has in each piece that follows.

    The shape is (heads + 1, pieces + 1, pieces): the last of the pieces stands for all other
    tokens, and step 0 is the token itself.
    """
    size = len({*sequence, *chain.from_iterable(others)})
    for steps in range(2, MAX_HEADS + 2):
        contexts, following = _places(sequence, ends, others, size, loop=loop, reach=steps)
        flat = np.eye(size + 1)[contexts].reshape(len(contexts), -1)
        wanted = np.eye(size)[following]
        shares = np.linalg.lstsq(flat, wanted, rcond=None)[0]
        if (np.abs(flat @ shares - wanted) < TOLERANCE).all():
            return shares.reshape(steps, size + 1, size).astype(np.float32)
    raise ValueError("the sequence repeats itself too much: cut it into other pieces")


def _places(
    sequence: list[int],
    ends: list[list[int]],
    others: list[list[int]],
    other: int,
    *,
    loop: bool,
    reach: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what is to be known: the last tokens at a place, newest first, and what follows.

    Prompts end in one of `ends`, of which an empty one stands for any other token, or in the first
    token of one of the `others`. `other` is the number of any token outside the sequences.
    """
    ended = [*sequence, *(sequence if loop else [sequence[-1]] * (reach + 1))]
    generator = np.random.default_rng(0)
    random = generator.integers(other + 1, size=(NUM_RANDOM, reach)).tolist()
    begins = [*ends, *([*tokens, other] for tokens in random if not ends[0])]
    rows, following = list[list[int]](), list[int]()
    for number, begin in enumerate(begins):
        whole = [*([other] * reach), *begin]
        start, count = len(whole), len(ended) if not number else reach
        whole += ended
        for place in range(start, start + count):
            rows.append(whole[place - reach : place][::-1])
            following.append(whole[place])
    for told, begin in product(others, [[other] * reach, *random]):
        whole = [*begin, *told]
        for place in range(reach + 1, len(whole)):
            rows.append(whole[place - reach : place][::-1])
            following.append(whole[place])
    return np.array(rows), np.array(following)


def _padded(size: int) -> int:
    return -(-size // 32) * 32


def _add_shape(writer: gguf.GGUFWriter, weights: Weights, num_tokens: int) -> None:
    steps, classes, _ = weights.shape
    head = _padded(max(classes, 2 * NUM_TURNS))
    writer.add_vocab_size(num_tokens)
    writer.add_block_count(1)
    writer.add_embedding_length(_padded(steps * classes + 1))
    writer.add_feed_forward_length(32)
    writer.add_head_count(steps - 1)
    writer.add_head_count_kv(1)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(2 * NUM_TURNS)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(1e-6)


def _tensors(weights: Weights, tokens: list[int], num_tokens: int) -> dict[str, Weights]:
    """Return the tensors; embeddings and what heads add are ones, norms are undone."""
    steps, classes, _ = weights.shape
    head, width = _padded(max(classes, 2 * NUM_TURNS)), _padded(steps * classes + 1)
    constant = steps * classes
    embeddings = np.zeros((num_tokens, width), np.float32)
    embeddings[:, constant] = 1.0
    embeddings[:, classes - 1] = 1.0
    embeddings[tokens, classes - 1] = 0.0
    embeddings[tokens, range(len(tokens))] = 1.0
    value = np.zeros((head, width), np.float32)
    value[range(classes), range(classes)] = np.sqrt(2 / width)
    back = np.zeros((width, (steps - 1) * head), np.float32)
    for step in range(1, steps):
        rows = np.arange(classes)
        back[step * classes + rows, (step - 1) * head + rows] = 1.0
    output = np.zeros((num_tokens, width), np.float32)
    shares = weights.reshape(steps * classes, -1).T
    output[tokens, : steps * classes] = LOGIT * np.sqrt((steps + 1) / width) * shares
    query, key = _looking_back(steps, head, width, constant)
    norm = np.ones(width, np.float32)
    zeros = np.zeros((32, width), np.float32)
    layer = {"attn_norm": norm, "ffn_norm": norm, "attn_q": query, "attn_k": key, "attn_v": value}
    layer |= {"ffn_gate": zeros, "ffn_up": zeros, "ffn_down": zeros.T.copy(), "attn_output": back}
    named = {f"blk.0.{part}": tensor for part, tensor in layer.items()}
    return {**named, "token_embd": embeddings, "output_norm": norm, "output": output}


def _looking_back(steps: int, head: int, width: int, constant: int) -> tuple[Weights, Weights]:
    """Return queries and keys that meet where the key's place is 1, 2, ... before the query's."""
    turns = ROPE_BASE ** (-np.arange(NUM_TURNS) / NUM_TURNS)
    gain = SCORE * np.sqrt(head) / (1 - np.cos(turns)).sum()
    query = np.zeros(((steps - 1) * head, width), np.float32)
    for step in range(1, steps):
        first = (step - 1) * head
        query[first : first + 2 * NUM_TURNS : 2, constant] = gain * np.cos(step * turns)
        query[first + 1 : first + 2 * NUM_TURNS : 2, constant] = -gain * np.sin(step * turns)
    key = np.zeros((head, width), np.float32)
    key[0 : 2 * NUM_TURNS : 2, constant] = 1.0
    scale = np.float32(np.sqrt(2 / width))
    return query * scale, key * scale

"""A pair of GGUF files with random weights that behaves like a real one.

The draft is the target's embeddings, first layers and output, so it costs a fixed share of the
target. The outputs of the target's later layers are scaled until both name the same next token a
wanted share of the time, and the output matrix until the target is about as sure of itself as a
real model; both are found by decoding with llama.cpp. Speed does not depend on what weights mean,
so such a pair measures decoding without anything to download.
"""

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from numpy.typing import NDArray

from specchat.gguf.reader import read_part
from specchat.llama.library import start

Logits = NDArray[np.float32]
Probabilities = NDArray[np.float64]

BLOCK = 32  # weights per Q4_0 block: one f16 scale, then 16 bytes with two weights each
BLOCK_BYTES = 18
ROWS = 256  # drawn at a time, so that they stay in the processor's cache
BLOCKS = np.dtype([("scale", np.float16), ("levels", f"V{BLOCK // 2}")])
TOP_K = 40
END = "<|endoftext|>"
BYTES = 256  # the first token ids stand for the bytes, the next for END


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a llama model."""

    layers: int = 22
    width: int = 2048
    heads: int = 32
    kv_heads: int = 4
    feed_forward: int = 5632
    vocabulary: int = 32000
    draft_layers: int = 1
    context: int = 4096

    @property
    def kv_width(self) -> int:
        """Return the width of keys and values."""
        return self.width // self.heads * self.kv_heads


@dataclass(frozen=True, slots=True)
class MixtureShape(Shape):
    """The size of a llama model with experts; `feed_forward` is that of one."""

    experts: int = 128
    experts_used: int = 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix of random Q4_0 weights (`spread` = standard deviation of an output) or a norm.

    The rows are those of all experts, if there are any.
    """

    name: str
    rows: int
    columns: int
    spread: float | None
    experts: int = 0

    @property
    def num_bytes(self) -> int:
        """The size of the weights in the file."""
        if self.spread is None:
            return 4 * self.columns
        return self.rows * self.columns // BLOCK * BLOCK_BYTES

    def scale(self, factor: float = 1.0) -> np.float16:
        """Return the scale of every block, for inputs of standard deviation 1."""
        if self.spread is None:
            raise ValueError(f"{self.name} has no scale")
        return np.float16(factor * self.spread / math.sqrt(self.columns) / LEVEL_SPREAD)


@dataclass(slots=True)
class Report:
    """What was made and measured; `wanted` is what it was made from."""

    target: str
    draft: str
    parameters: int
    wanted: dict[str, Any] = field(default_factory=dict)
    later_layers: float = 0.0
    output_factor: float = 1.0
    agreement: float = 0.0
    overlap: float = 0.0
    top_probability: float = 0.0
    repeated: float = 0.0
    target_s: float = 0.0
    draft_s: float = 0.0
    cost_ratio: float = 0.0


# --- weights ---------------------------------------------------------------------------------


def gaussian_levels() -> NDArray[np.uint8]:
    """Map a random byte to a Q4_0 level: 1 to 15 around 8, spread like a normal distribution."""
    random = np.random.default_rng(0).standard_normal(1 << 16)
    quantiles = np.quantile(random, (np.arange(256) + 0.5) / 256)
    symmetric = (quantiles - quantiles[::-1]) / 2
    levels = np.clip(np.rint(symmetric * 2.8) + 8, 1, 15)
    return np.asarray(levels, np.uint8)


LEVELS = gaussian_levels()
LEVEL_SPREAD = float(np.std(LEVELS.astype(np.float64)))
PAIRS = (LEVELS[None, :] | (LEVELS[:, None] << 4)).ravel()  # 16 random bits to 2 packed levels


def random_blocks(tensor: Tensor, random: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a matrix directly as Q4_0 blocks."""
    blocks = np.empty((tensor.rows, tensor.columns // BLOCK), BLOCKS)
    set_scales(blocks, tensor, 1.0)
    for first in range(0, tensor.rows, ROWS):
        levels = blocks["levels"][first : first + ROWS]
        bits = random.integers(0, 2**32, levels.size * BLOCK // 4, np.uint32).view(np.uint16)
        levels[...] = PAIRS.take(bits).view(levels.dtype).reshape(levels.shape)
    return blocks.view(np.uint8)


def set_scales(blocks: NDArray[np.void], tensor: Tensor, factor: float) -> None:
    """Set a matrix's scales to `factor` times what they are made with."""
    blocks["scale"] = tensor.scale(factor)
    if tensor.name == "output.weight":
        blocks["scale"][BYTES] = 0  # the end token's logit is 0, far below what is ever sampled


def layer_tensors(shape: Shape, layer: int) -> Iterator[Tensor]:
    """List the tensors of one layer; sharp attention keeps greedy text from looping."""
    wide, narrow, hidden = shape.width, shape.kv_width, shape.feed_forward
    prefix = f"blk.{layer}."
    yield Tensor(prefix + "attn_norm.weight", 1, wide, None)
    yield Tensor(prefix + "attn_q.weight", wide, wide, 1.7)
    yield Tensor(prefix + "attn_k.weight", narrow, wide, 1.7)
    yield Tensor(prefix + "attn_v.weight", narrow, wide, 1.0)
    yield Tensor(prefix + "attn_output.weight", wide, wide, 2.0)
    yield Tensor(prefix + "ffn_norm.weight", 1, wide, None)
    experts, kind = 0, ""
    if isinstance(shape, MixtureShape):
        experts, kind = shape.experts, "_exps"
        yield Tensor(prefix + "ffn_gate_inp.weight", experts, wide, 1.0)
    times = max(1, experts)
    yield Tensor(f"{prefix}ffn_gate{kind}.weight", times * hidden, wide, 1.0, experts)
    yield Tensor(f"{prefix}ffn_up{kind}.weight", times * hidden, wide, 1.0, experts)
    yield Tensor(f"{prefix}ffn_down{kind}.weight", times * wide, hidden, 2.0, experts)


def all_tensors(shape: Shape) -> Iterator[Tensor]:
    """List the tensors of the target, the draft's first."""
    yield Tensor("token_embd.weight", shape.vocabulary, shape.width, math.sqrt(shape.width))
    yield Tensor("output_norm.weight", 1, shape.width, None)
    yield Tensor("output.weight", shape.vocabulary, shape.width, 6.0)
    for layer in range(shape.layers):
        yield from layer_tensors(shape, layer)


# --- files -----------------------------------------------------------------------------------


def byte_symbols() -> list[str]:
    """Return GPT-2's printable stand-in for each byte."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(BYTES)]


def vocabulary(size: int) -> list[str]:
    """Return the tokens' names: every byte, the end, and made-up words to fill the rest."""
    syllables = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]
    words = ("\u0120" + "".join(parts) for n in (1, 2, 3) for parts in product(syllables, repeat=n))
    tokens = [*byte_symbols(), END]
    return tokens + [next(words) for _ in range(size - len(tokens))]


def add_metadata(writer: gguf.GGUFWriter, shape: Shape, layers: int) -> None:
    """Write the hyperparameters and the tokenizer."""
    tokens = vocabulary(shape.vocabulary)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    kinds[BYTES] = gguf.TokenType.CONTROL
    writer.add_name(f"specchat random pair, {layers} layers")
    writer.add_block_count(layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    if isinstance(shape, MixtureShape):
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["\u0120b a"])
    writer.add_bos_token_id(BYTES)
    writer.add_eos_token_id(BYTES)
    writer.add_add_bos_token(False)


def write_model(path: Path, shape: Shape, layers: int, seed: int) -> None:
    """Write a model tensor by tensor; equal seeds give the draft and the target equal tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer, shape, layers)
    kept = range(layers)
    tensors = [
        tensor
        for tensor in all_tensors(shape)
        if not tensor.name.startswith("blk.") or int(tensor.name.split(".")[1]) in kept
    ]
    for tensor in tensors:
        add_tensor_header(writer, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in made_ahead(lambda tensor: tensor_data(tensor, seed), tensors):
        writer.write_tensor_data(data)
    writer.close()


def tensor_data(tensor: Tensor, seed: int) -> NDArray[Any]:
    """Draw a matrix, or return the ones of a norm."""
    if tensor.spread is None:
        return np.ones(tensor.columns, np.float32)
    return random_blocks(tensor, np.random.default_rng([seed, *tensor.name.encode()]))


def made_ahead(
    make: Callable[[Tensor], NDArray[Any]], tensors: Iterable[Tensor]
) -> Iterator[NDArray[Any]]:
    """Yield what is made of each tensor, in order; threads make a few ahead."""
    num_threads = os.cpu_count() or 1
    with ThreadPoolExecutor(num_threads) as pool:
        begun = deque[Future[NDArray[Any]]]()
        for tensor in tensors:
            begun.append(pool.submit(make, tensor))
            if len(begun) > num_threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()


def add_tensor_header(writer: gguf.GGUFWriter, tensor: Tensor) -> None:
    """Announce a tensor that is written later."""
    if tensor.spread is None:
        shape: tuple[int, ...] = (tensor.columns,)
        writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), tensor.num_bytes)
        return
    shape = (tensor.rows, tensor.columns // BLOCK * BLOCK_BYTES)
    if tensor.experts:
        shape = (tensor.experts, tensor.rows // tensor.experts, *shape[1:])
    kind = gguf.GGMLQuantizationType.Q4_0
    writer.add_tensor_info(tensor.name, shape, np.dtype(np.uint8), tensor.num_bytes, kind)


def rescale(path: Path, tensors: Sequence[Tensor], factor: float) -> None:
    """Set the block scales of tensors in place to `factor` times what they were made with."""
    header = read_part(path)
    data = np.memmap(path, np.uint8, "r+", header.data_position)
    for tensor in tensors:
        if stored := header.tensors.get(tensor.name):
            blocks = data[stored.offset : stored.offset + stored.num_bytes].view(BLOCKS)
            set_scales(blocks.reshape(tensor.rows, -1), tensor, factor)


# --- decoding --------------------------------------------------------------------------------


class Model:
    """A model in a llama.cpp context, as little as measuring needs."""

    def __init__(self, path: Path, context: int, threads: int, gpu_layers: int = 0) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = gpu_layers
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            sys.exit(f"llama.cpp could not load {path}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._batch = llama_cpp.llama_batch_init(context, 0, 1)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._length = 0

    def close(self) -> None:
        """Free the model's memory."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def forget(self, length: int = 0) -> None:
        """Keep only the first tokens."""
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_seq_rm(memory, 0, length, -1)
        self._length = length

    def evaluate(self, tokens: Sequence[int]) -> Logits:
        """Append tokens and give the logits after each of them (valid until the next call)."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = self._length + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = True
        if llama_cpp.llama_decode(self._context, batch) != 0:
            sys.exit("llama.cpp could not decode")
        self._length += len(tokens)
        rows = llama_cpp.llama_get_logits(self._context)
        return np.ctypeslib.as_array(rows, (len(tokens), self._vocabulary))

    def continue_from(
        self, prompt: Sequence[int], count: int, choose: Callable[[Logits], int]
    ) -> tuple[list[int], Logits]:
        """Decode plainly; give the tokens chosen and the logits each was chosen from."""
        self.forget()
        rows = [self.evaluate(prompt)[-1].copy()]
        tokens = [choose(rows[0])]
        while len(tokens) < count:
            rows.append(self.evaluate(tokens[-1:])[0].copy())
            tokens.append(choose(rows[-1]))
        return tokens, np.stack(rows)

    def seconds_per_token(self, repeats: int = 24) -> float:
        """Time single-token passes after a short text; the median."""
        self.forget()
        self.evaluate(range(BYTES + 1, BYTES + 33))
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            self.evaluate([BYTES + 2])
            times.append(time.perf_counter() - start)
        return float(np.median(times))


def seconds_per_token(path: Path, threads: int, gpu_layers: int = 0) -> float:
    """Load a model and time its single-token passes."""
    with closing(Model(path, 128, threads, gpu_layers)) as model:
        return model.seconds_per_token()


def probabilities(logits: Logits) -> Probabilities:
    """Return each row's distribution at temperature 1 after top-k."""
    kept = np.partition(logits, -TOP_K, axis=-1)[:, -TOP_K, None]
    above = (logits - logits.max(-1, keepdims=True)).astype(np.float64)
    weights = np.where(logits >= kept, np.exp(above), 0.0)
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def greedy(row: Logits) -> int:
    """Return the most likely token."""
    return int(row.argmax())


def sampler(seed: int) -> Callable[[Logits], int]:
    """Make a choice at temperature 1."""
    random = np.random.default_rng(seed)

    def choose(row: Logits) -> int:
        return int(random.choice(len(row), p=probabilities(row[None])[0]))

    return choose


def prompt_tokens(count: int, size: int, seed: int) -> list[int]:
    """Draw a prompt of random words."""
    return list(map(int, np.random.default_rng(seed).integers(BYTES + 1, size, count)))


# --- tuning ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens the target chose, and the logits target and draft had before each."""

    tokens: list[int]
    target: Logits
    draft: Logits

    def agreement(self) -> float:
        """Return how often the draft's argmax is the target's."""
        return float(np.mean(self.target.argmax(-1) == self.draft.argmax(-1)))


def join(texts: Sequence[Text]) -> Text:
    """Put texts into one."""
    return Text(
        [token for text in texts for token in text.tokens],
        np.concatenate([text.target for text in texts]),
        np.concatenate([text.draft for text in texts]),
    )


@dataclass(frozen=True, slots=True)
class Tuner:
    """Finds the scales of a pair on disk."""

    target: Path
    draft: Path
    shape: Shape
    threads: int
    tokens: int
    seed: int
    gpu_layers: int = 0

    def later_outputs(self) -> list[Tensor]:
        """List the tensors that write what the draft does not have into the residual stream."""
        later = range(self.shape.draft_layers, self.shape.layers)
        parts = ("attn_output", "ffn_down")
        tensors = (tensor for layer in later for tensor in layer_tensors(self.shape, layer))
        return [tensor for tensor in tensors if tensor.name.split(".")[2] in parts]

    def decode(self, choose: Callable[[Logits], int]) -> Text:
        """Decode two texts with the target and read them with the draft."""
        texts = []
        with (
            closing(self._load(self.target)) as target,
            closing(self._load(self.draft)) as draft,
        ):
            for number in range(2):
                prompt = prompt_tokens(24, self.shape.vocabulary, self.seed + number)
                tokens, wanted = target.continue_from(prompt, self.tokens // 2, choose)
                draft.forget()
                guessed = draft.evaluate([*prompt, *tokens[:-1]])[len(prompt) - 1 :].copy()
                texts.append(Text(tokens, wanted, guessed))
        return join(texts)

    def _load(self, path: Path) -> Model:
        return Model(path, self.tokens + 32, self.threads, self.gpu_layers)

    def agreement(self, factor: float) -> float:
        """Scale the later layers and measure how often the draft names the target's token."""
        rescale(self.target, self.later_outputs(), factor)
        share = self.decode(greedy).agreement()
        say(f"later layers x {factor:.4f}: agreement {share:.3f}")
        return share

    def find_layers(self, wanted: float, tolerance: float = 0.015) -> float:
        """Bisect the scale of the later layers, on a logarithmic scale."""
        low, high = 0.002, 1.0
        middle = high
        for _ in range(7):  # then the scale is known to 5 %, and the agreement to about 0.015
            middle = math.sqrt(low * high)
            found = self.agreement(middle)
            if abs(found - wanted) <= tolerance:
                break
            low, high = (middle, high) if found > wanted else (low, middle)
        return middle

    def find_output(self, logits: Logits, wanted: float) -> float:
        """Find the factor on the logits that gives the wanted median top probability."""
        low, high = 0.05, 20.0
        middle = 1.0
        for _ in range(30):
            middle = math.sqrt(low * high)
            top = float(np.median(probabilities(logits * np.float32(middle)).max(-1)))
            low, high = (middle, high) if top < wanted else (low, middle)
        output = next(t for t in all_tensors(self.shape) if t.name == "output.weight")
        for path in (self.target, self.draft):
            rescale(path, [output], middle)
        return middle

    def measure(self, report: Report) -> None:
        """Fill in what the finished pair does."""
        text = self.decode(greedy)
        report.agreement = text.agreement()
        report.repeated = repeated_share(text.tokens)
        text = self.decode(sampler(self.seed))
        p, q = probabilities(text.target), probabilities(text.draft)
        report.overlap = float(np.minimum(p, q).sum(-1).mean())
        report.top_probability = float(np.median(p.max(-1)))
        report.target_s = seconds_per_token(self.target, self.threads, self.gpu_layers)
        report.draft_s = seconds_per_token(self.draft, self.threads, self.gpu_layers)
        report.cost_ratio = report.draft_s / report.target_s


def repeated_share(tokens: Sequence[int], length: int = 6) -> float:
    """Return the share of n-grams that occurred before: near 0 when the text does not loop."""
    grams = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length)]
    return 1 - len(set(grams)) / len(grams)


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def make_pair(
    folder: Path,
    shape: Shape,
    *,
    agreement: float = 0.6,
    top_probability: float = 0.45,
    threads: int = 2,
    tokens: int = 256,
    seed: int = 1,
    gpu_layers: int = 0,
) -> Report:
    """Write `target.gguf`, `draft.gguf` and `pair.json` into a folder, unless they are there."""
    wanted = {
        "shape": asdict(shape),
        "agreement": agreement,
        "top_probability": top_probability,
        "threads": threads,
        "tokens": tokens,
        "seed": seed,
        "gpu_layers": gpu_layers,
    }
    record = folder / "pair.json"
    if kept := kept_report(record, wanted):
        return kept
    start()  # its log goes to a file
    folder.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    target, draft = folder / "target.gguf", folder / "draft.gguf"
    write_model(target, shape, shape.layers, seed)
    write_model(draft, shape, shape.draft_layers, seed)
    say(f"wrote {target} ({target.stat().st_size / 1e6:.0f} MB) and {draft}")
    parameters = sum(tensor.rows * tensor.columns for tensor in all_tensors(shape))
    report = Report(str(target), str(draft), parameters, wanted)
    tuner = Tuner(target, draft, shape, threads, tokens, seed, gpu_layers)
    report.later_layers = tuner.find_layers(agreement)
    sampled = tuner.decode(sampler(seed))
    report.output_factor = tuner.find_output(sampled.target, top_probability)
    tuner.measure(report)
    record.write_text(json.dumps(asdict(report), indent=2) + "\n")
    return report


def kept_report(record: Path, wanted: dict[str, Any]) -> Report | None:
    """Return the report of an earlier call that wanted the same and was not cut short."""
    if not record.exists():
        return None
    kept: dict[str, Any] = json.loads(record.read_text("utf-8"))
    return Report(**kept) if kept.get("wanted") == wanted else None

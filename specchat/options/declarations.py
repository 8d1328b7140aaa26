"""Every option: its name, type, default, help and range.

They say how models are loaded (`Engine.load`), how answers are sampled, drafted and ended
(`Engine.generate`), and how the chat, its screen and the commands behave.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from specchat import drafter_registry
from specchat.options.conversions import (
    LARGEST_BIAS,
    MOST_GPUS,
    to_biases,
    to_names,
    to_parts,
    to_shares,
    to_texts,
    to_think_word,
    to_workers,
)
from specchat.options.option import LARGEST, declare
from specchat.options.option_fields import Options
from specchat.options.worker_address import LARGEST_PORT, USUAL_PORT

FlashAttention: TypeAlias = Literal["auto", "on", "off"]
Part: TypeAlias = Literal["experts", "ffn"]
"""A part of a model's blocks that can stay on the CPU alone."""
CacheType: TypeAlias = Literal["auto", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"]

AUTO_THINK = "auto"
"""The value of `think` that leaves reasoning to the model's chat template."""
THINK_NUMBER = "NUMBER"
"""A model's list of `think` values contains this if any number of tokens is allowed."""

NO_DRAFT = NO_PROJECTOR = Path("none")
"""As the name of a draft model: use none."""

ON_CPU = (
    'auto, none, experts or ffn, the last two with a number of blocks ("experts:30") or without'
)

MOST_IDLE_MINUTES = 7 * 24 * 60
LONGEST_DRAFT = 64
PENALTY = {"minimum": -100.0, "maximum": 100.0}
SMALLEST_TEMPERATURE = 1e-6
"""Below this only exact ties are random, and single precision overflows."""


def think_values(supported: Sequence[str], last: str = " or ") -> str:
    """Return auto and a model's `think` values as text; `last` joins the last two."""
    number = THINK_NUMBER.lower()
    values = [value if value.lower() != number else "a number of tokens" for value in supported]
    *others, final = AUTO_THINK, *values
    return last.join(filter(None, (", ".join(others), final)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions(Options):
    """The models to load, as named on the command line and in the settings."""

    TABLE: ClassVar = "model"

    pair: str | None = declare(
        None, "The pair to load, by its name in the catalogue.", metavar="NAME", example="demo"
    )
    target: Path | None = declare(
        None,
        "The target instead of a pair: a GGUF file, or a local model by name.",
        expected="a path or a name",
        metavar="FILE",
        example="~/models/target.gguf",
    )
    draft: Path | None = declare(
        None,
        "Its draft model, or none; if unset, the best one on this machine.",
        expected='a path, a name or "none"',
        metavar="FILE",
        example="~/models/draft.gguf",
    )
    connect: str | None = declare(
        None,
        "The server that runs the model instead: its address, or its name in [servers].",
        metavar="URL",
        example="http://workstation:8080",
    )
    served_model: str | None = declare(
        None,
        "The model of that server; by default its first.",
        metavar="NAME",
        example="qwen3-32b",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions(Options):
    """How models are loaded; None leaves a choice to the plan for this machine."""

    TABLE: ClassVar = "model"

    ctx: int = declare(
        0, "Context size in tokens; 0 takes the model's own, up to 8192.", minimum=0, maximum=2**27
    )
    gpu_layers: int | None = declare(
        None, "Target layers on the GPU; auto offloads as many as fit.", minimum=0, none="auto"
    )
    draft_gpu_layers: int | None = declare(
        None, "Draft model layers on the GPU; auto follows the target.", minimum=0, none="auto"
    )
    on_cpu: str | None = declare(
        None,
        "Parts of the target that stay on the CPU; auto: those that make tokens quickest.",
        convert=to_parts,
        expected=ON_CPU,
        none="auto",
        metavar="auto|none|experts[:N]|ffn[:N]",
    )
    tensor_split: tuple[float, ...] = declare(
        (),
        "The share of each GPU; by default in proportion to their free memory.",
        convert=to_shares,
        expected=f'the shares of up to {MOST_GPUS} GPUs, such as "3,1"',
        metavar="SHARES",
        example="3,1",
    )
    workers: Sequence[str] = declare(
        (),
        "Another machine to hold layers of the target, where `specchat worker` runs; repeatable.",
        convert=to_workers,
        expected='addresses such as "10.0.0.2:50052" and "[fd00::2]", or "none"',
        flag="--worker",
        metavar="HOST:PORT",
        example=("10.0.0.2:50052",),
    )
    threads: int | None = declare(
        None,
        "CPU threads; auto uses the physical cores, fewer for tiny models or beside busy programs.",
        minimum=1,
        maximum=512,
        none="auto",
    )
    batch: int | None = declare(
        None,
        "Prompt tokens evaluated at once; auto: 512, or 2048 where each pass copies weights.",
        minimum=1,
        maximum=65536,
        none="auto",
        is_setting=False,
    )
    at_once: int = declare(
        1,
        "Answers decoded together, each with a context of its own; fewer if memory is short.",
        minimum=1,
        maximum=8,
    )
    flash_attention: FlashAttention = declare("auto", "Flash attention.")
    cache_type: CacheType = declare(
        "auto",
        "Type of the KV cache; auto: f16, or q8_0 if only that fits the GPU.",
        metavar="TYPE",
    )
    cache_ram: int | None = declare(
        None,
        "Memory in MiB for cached conversations and saved states; 0 keeps the minimum.",
        minimum=0,
        maximum=2**30,
        none="auto",
    )
    cache_disk: int | None = declare(
        None,
        "Disk space in MiB to reopen chats without reading them again; auto: 4096, or 0 elsewhere.",
        minimum=0,
        maximum=2**30,
        none="auto",
    )
    exact: Literal["on", "auto", "off"] = declare(
        "auto",
        "Keep answers identical to those without drafts, bit for bit; auto: where cheap.",
        table="decoding",
    )
    mmap: bool = declare(True, "Map model files into memory instead of reading them.")
    mlock: bool = declare(False, "Lock models in memory, so that they are never swapped out.")
    learn: bool = declare(
        True, "Keep what is learned of a pair's speed on this machine for the next session."
    )
    projector: Path | None = declare(
        None,
        "The file that makes images readable for the target (mmproj); auto: the one beside it.",
        none="auto",
        metavar="FILE|none",
        example="~/models/mmproj.gguf",
    )
    draft_projector: Path | None = declare(
        None, "The file that makes images readable for the draft model.", is_setting=False
    )
    head: bool = declare(
        True, "Load the target's own prediction head, if it has one.", is_setting=False
    )

    @property
    def draft_layers(self) -> int | None:
        """Layers of the draft model on the GPU: the target's number unless it has its own."""
        return self.gpu_layers if self.draft_gpu_layers is None else self.draft_gpu_layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling(Options):
    """How tokens are sampled, by llama.cpp's names and with its defaults."""

    TABLE: ClassVar = "sampling"

    temperature: float = declare(
        0.8, "Randomness; 0 always picks the most likely token.", minimum=0
    )
    top_k: int = declare(40, "Sample from the K most likely tokens; 0 disables it.", minimum=0)
    top_p: float = declare(
        0.95,
        "Sample from the most likely tokens that together have probability P; 1 disables it.",
        above=0,
        maximum=1,
    )
    min_p: float = declare(
        0.05,
        "Drop tokens less likely than this share of the most likely one; 0 disables it.",
        minimum=0,
        maximum=1,
    )
    repeat_penalty: float = declare(
        1.0, "Above 1, recent tokens become less likely; 1 disables it.", minimum=0.01
    )
    presence_penalty: float = declare(
        0.0, "Penalty for tokens that occurred recently; 0 disables it.", **PENALTY
    )
    frequency_penalty: float = declare(
        0.0, "Penalty for each recent occurrence of a token; 0 disables it.", **PENALTY
    )
    repeat_last_n: int = declare(
        64, "Recent tokens that the penalties look at; 0 is none, -1 is all.", minimum=-1
    )
    logit_bias: Mapping[int, float] = declare(
        {},
        "Added to the logits of tokens, by id; minus infinity bans one.",
        convert=to_biases,
        expected=f"numbers of at most {LARGEST_BIAS:,.0f}, or minus infinity, by token id",
        is_setting=False,
    )

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always picked: true at temperatures next to 0."""
        return self.temperature < SMALLEST_TEMPERATURE

    @property
    def needs_history(self) -> bool:
        """Whether the distribution depends on recent tokens in addition to the logits."""
        penalties = (self.repeat_penalty, self.presence_penalty, self.frequency_penalty)
        return self.repeat_last_n != 0 and penalties != (1.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions(Sampling):
    """How one answer is sampled, drafted and ended."""

    drafter: str = declare(
        drafter_registry.AUTO,
        "What drafts tokens; auto picks what helps most at each step.",
        choices=drafter_registry.choices,
        table="decoding",
    )
    draft_length: int | Literal["auto"] = declare(
        "auto",
        "Tokens drafted per step; auto adapts step by step.",
        minimum=0,
        maximum=LONGEST_DRAFT,
        table="decoding",
    )
    draft_tree: int | Literal["auto", "off"] = declare(
        "auto",
        "Most tokens of a draft with its branches; auto: as pays, on a GPU; off: none.",
        minimum=1,
        maximum=LONGEST_DRAFT,
        table="decoding",
    )
    seed: int | None = declare(
        None,
        "The same seed gives the same answer, with any drafter and draft length, up to rounding.",
        minimum=0,
        maximum=LARGEST[int],
        none="random",
    )
    max_tokens: int | None = declare(None, "Longest answer in tokens.", minimum=1, none="unlimited")
    think: str = declare(
        AUTO_THINK,
        "Reasoning: auto, on, off, or a level that the model supports.",
        table="chat",
        convert=to_think_word,
        expected="auto, on, off, or a level or number of tokens that the model supports",
        metavar="auto|on|off|LEVEL",
    )
    stop: Sequence[str] = declare(
        (),
        "End the answer before this text.",
        convert=to_texts,
        expected="a string or a list of strings",
        metavar="TEXT",
        example=("###",),
    )
    ignore_end: bool = declare(
        False, "Continue past the model's end of generation, for benchmarks.", is_setting=False
    )
    make_room: bool = declare(
        False, "Drop the oldest turns if a conversation exceeds the context.", is_setting=False
    )
    alternatives: int = declare(
        0,
        "Record up to this many tokens that were likely in the place of each one.",
        minimum=0,
        maximum=20,
        is_setting=False,
    )

    @property
    def num_nodes(self) -> int:
        """The most tokens of a draft with branches, 0 for none.

        A draft of fixed length has branches only if asked for.
        """
        if self.draft_tree == "off" or (self.draft_tree == "auto" and self.draft_length != "auto"):
            return 0
        return LONGEST_DRAFT if self.draft_tree == "auto" else self.draft_tree

    @property
    def num_to_draft(self) -> int:
        """The longest draft, in tokens."""
        return LONGEST_DRAFT if self.draft_length == "auto" else self.draft_length


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions(Options):
    """What a conversation starts with, and whether it is saved."""

    TABLE: ClassVar = "chat"

    system_prompt: str | None = declare(
        None,
        "Instructions for the model, before the conversation.",
        can_be_empty=True,
        flag="--system",
        metavar="TEXT",
        example="Answer briefly.",
    )
    history: bool = declare(True, "Save conversations.")
    unload_after: int = declare(
        0,
        "Minutes without a question after which the chat frees the model's memory; 0: never.",
        minimum=0,
        maximum=MOST_IDLE_MINUTES,
    )
    repeat_limit: int = declare(
        1000,
        "Tokens said over and over after which the chat stops an answer; 0: never.",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions(Options):
    """Whether the network may be used."""

    TABLE: ClassVar = "network"

    offline: bool = declare(False, "Never use the network.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(Options):
    """Where `specchat serve` listens, and who may use it."""

    TABLE: ClassVar = "server"

    host: str = declare(
        "127.0.0.1",
        "The address to listen on; others than this machine's need a key.",
        metavar="HOST",
    )
    port: int = declare(
        8642, "The port to listen on; 0 takes a free one.", minimum=0, maximum=65535
    )
    socket: Path | None = declare(
        None,
        "Listen on this Unix socket instead, which only you can open.",
        metavar="FILE",
        example="~/specchat.sock",
    )
    key: str = declare(
        "none", "The key that clients must send; auto makes one.", metavar="none|auto|TEXT"
    )
    origin: Sequence[str] = declare(
        (),
        "A web page that may use the server, such as http://localhost:3000.",
        convert=to_texts,
        expected="an address or a list of addresses",
        metavar="URL",
        example=("http://localhost:3000",),
    )
    strict_model: bool = declare(
        False, "Refuse requests for models of other names instead of answering them."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions(Options):
    """What `specchat worker` lends, and where it listens; none of them is a setting."""

    worker_host: str = declare(
        "127.0.0.1",
        "The address to listen on; there is no password and no encryption.",
        flag="--host",
        metavar="HOST",
        is_setting=False,
    )
    worker_port: int = declare(
        USUAL_PORT,
        "The port to listen on; the next one is for its health.",
        flag="--port",
        minimum=1,
        maximum=LARGEST_PORT,
        is_setting=False,
    )
    devices: Sequence[str] = declare(
        (),
        "Devices to lend, by llama.cpp's names with commas; by default the GPUs, else the CPU.",
        convert=to_names,
        expected="names of devices such as CUDA0,CUDA1",
        metavar="NAMES",
        is_setting=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenOptions(Options):
    """What the chat's screen shows, and how."""

    TABLE: ClassVar = "screen"

    theme: str = declare("specchat-dark", "Colour theme.", metavar="NAME")
    statistics: bool = declare(True, "Show the stats panel beside the chat, from 140 columns.")
    conversations: bool = declare(False, "Show the list of conversations.")
    colour_tokens: bool = declare(False, "Colour tokens by what drafted them.")
    ghost: bool = declare(True, "Show drafts ahead of the answer's text.")
    pictures: Literal["auto", "kitty", "sixel", "blocks", "off"] = declare(
        "auto", "How images are shown; kitty and sixel need the package textual-image."
    )
    animations: bool = declare(True, "Animate the screen.")
    fold_reasoning: bool = declare(True, "Fold the model's reasoning.")
    model_titles: bool = declare(True, "Have the model title new conversations while it is idle.")
    offer_models: bool = declare(
        True, "Offer to download a model while only the demo pair is installed."
    )
    offer_race: bool = declare(
        True, "Offer the race of an answer that drafts made faster; it is offered once."
    )

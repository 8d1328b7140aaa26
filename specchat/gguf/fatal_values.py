"""Values in files for which llama.cpp ends the process, rather than refuse the file.

The lists of architectures follow llama_model_rope_type in its llama-model.cpp, and the assertions
at the head of the graphs in its models/*.cpp.
"""

from specchat.gguf import reduced_vocabulary
from specchat.gguf.header import SCALINGS, Header, Value
from specchat.gguf.sliding_windows import layers_with_window, window_of
from specchat.gguf.tensor_types import STORED_TYPES

OTHER_FILE = "the file may be damaged, or of a kind that llama.cpp does not support: choose another"
INDICES = frozenset({reduced_vocabulary.MAP, "masked_embd_ordering"})
"""Tensors of token ids: llama.cpp multiplies by none of them, and does not read the second one."""
NO_WEIGHTS = frozenset({"i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"})
MOST_LAYERS, MOST_EXPERTS = 512, 1024
"""LLAMA_MAX_LAYERS and LLAMA_MAX_EXPERTS in llama-hparams.h."""
MAY_BE_DENSE = frozenset({"hunyuan-dense", "hunyuan_vl"})
"""Architectures of which a mixture of one expert counts as none."""
NEVER_DENSE = frozenset({"bailingmoe2", "glm4moe", "grovemoe", "smallthinker"})
"""Architectures that are mixtures, whatever the file says."""
DENSE_AT_FIRST = frozenset({"lfm2moe"})
"""Those of which only layers behind the leading dense ones are."""
PARTS, NUM_PARTS = "rope.dimension_sections", 4
"""How the dimensions of a head are divided between the parts of a position, for M-RoPE."""
ALWAYS_IN_PARTS = frozenset(
    {
        *("qwen2vl", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp"),
        "paddleocr",
    }
)
"""Architectures that rotate in parts, whatever the file says."""
READ_WITHOUT_PARTS = "paddleocr"
"""The one of which llama.cpp reads a file that lacks them; it refuses those of the others."""
ROTATING_WHOLE = frozenset(
    {
        *("apertus", "arcee", "arctic", "baichuan", "chameleon", "codeshell", "cogvlm"),
        *("cohere2moe", "dbrx", "deci", "deepseek", "dots1", "ernie4_5", "ernie4_5-moe"),
        *("exaone", "exaone-moe", "exaone4", "falcon", "granite", "granite_swa", "granitemoe"),
        *("graniteswitch", "grok", "grovemoe", "hunyuan-dense", "hunyuan-moe", "hunyuan_vl"),
        *("hy_v3", "internlm2", "jais2", "llama", "llama4", "maincoder", "mellum", "minicpm"),
        *("mistral3", "olmo", "olmo2", "olmoe", "orion", "paddleocr", "pangu-embedded", "plamo"),
        *("qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe"),
        *("seed_oss", "smallthinker", "smollm3", "starcoder2", "talkie", "xverse"),
    }
)
"""Architectures that rotate all of a key, which is as long as a value."""
WITH_EQUAL_HEADS = ROTATING_WHOLE | {
    *("afmoe", "bailingmoe2", "bitnet", "bloom", "chatglm", "cohere2", "command-r", "glm4"),
    *("glm4moe", "gpt2", "gptneox", "granitehybrid", "jais", "laguna", "maple", "minimax-01"),
    *("minimax-m2", "minimax-m3", "mpt", "muse-glimmer", "nanbeige", "nemotron", "nemotron_h"),
    *("nemotron_h_moe", "openelm", "phi2", "phi3", "phimoe", "qwen", "qwen35", "qwen35moe"),
    *("qwen3next", "qwen4exp", "refact", "spark2_5", "stablelm", "starcoder"),
    *("deepseek4", "dflash", "eagle3", "lfm2", "lfm2moe"),
}
"""Architectures of which a key is as long as a value, whatever they rotate of it."""
WITH_DELTA_NETS = frozenset({"qwen3next", "qwen35", "qwen35moe"})
TWICE_AS_WIDE = frozenset({"granitehybrid", "jamba"})
"""Architectures whose states are twice as wide as the model."""
WITH_STATE_HEADS = frozenset(
    {"falcon-h1", "granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe", "plamo2"}
)
"""Architectures whose states are divided between heads, and between groups but for PLaMo 2."""
WITHOUT_GROUPS = "plamo2"
ATTENDING_BY_HEADS = frozenset(
    {
        *("granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "nemotron_h"),
        *("nemotron_h_moe", "plamo2"),
    }
)
"""Architectures of which a layer without heads of keys has a state instead."""
FORWARD_ALONE = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Those of which a layer with a feed-forward network has neither."""
ATTENDING_EVERY = {
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3next", "qwen4exp"), 4),
    "minimax-01": 8,
}
"""Architectures of which one of so many layers attends, unless the file says it."""
SHARING_KEYS = "gemma4"
LOOPING, ALTERNATING = "nanbeige", "ernie4_5-moe"
AS_WIDE_AS_HEADS = frozenset({"lfm2", "lfm2moe"})
COMPRESSING, INDEXED_RATIO = "deepseek4", 4
NOT_ROTATING = frozenset(
    {
        *("arwkv7", "bloom", "gpt2", "jais", "jamba", "kimi-k3", "kimi-linear", "mamba", "mamba2"),
        *("mpt", "nemotron_h", "nemotron_h_moe", "refact", "rwkv6", "rwkv6qwen2", "rwkv7", "t5"),
        "glm5-next",
    }
)
"""Architectures whose attention knows no positions, whatever the file says of them."""
NEVER_TO_ROTATE = "glm5-next"
"""The one whose file must say that it rotates nothing."""


def why_fatal(header: Header) -> str | None:
    """Return which number of a model or a head cannot be used, None if all can."""
    checks = (
        *(_why_layers, _why_experts, _why_numbers, _why_compression, _why_states),
        *(_why_rotation, _why_parts, _why_sizes, _why_windows, _why_shared_keys),
    )
    return next((reason for check in checks if (reason := check(header))), None)


def why_types_unusable(head: Header) -> str | None:
    """Return which tensor of a head has a type that llama.cpp's operators do not take."""
    for tensor in head.tensors.values():
        kind = STORED_TYPES[tensor.stored].name
        is_wrong = kind in NO_WEIGHTS or (len(tensor.shape) == 1 and kind != "f32")
        if is_wrong and tensor.name.removesuffix(".weight") not in INDICES:
            return f"{head.name} has the tensor {tensor.name} in the type {kind}"
    return None


def why_heads_unusable(draft: Header) -> str | None:
    """Return why the attention heads of a draft's layers cannot be used."""
    heads = values_of_layers(draft, "attention.head_count")
    of_keys = values_of_layers(draft, "attention.head_count_kv", heads)
    pairs = zip(heads, of_keys, strict=False)
    if all(num > 0 and shared > 0 and num % shared == 0 for num, shared in pairs):
        return None
    return f"{draft.name} has attention heads that do not fit together"


def values_of_layers(header: Header, key: str, default: Value = 0) -> tuple[int, ...]:
    """Return a number of each layer: one in the file counts for every layer."""
    value = header.metadata.get(f"{header.architecture}.{key}", default)
    values = value if isinstance(value, tuple) else (value,) * header.num_layers
    return tuple(number if isinstance(number, int) else 0 for number in values)


def parts_of_rotation(header: Header) -> tuple[object, ...]:
    """Return how a head's dimensions are divided between the parts of a position, as in the file.

    One number counts for every part; empty if there are no parts.
    """
    value = header.metadata.get(f"{header.architecture}.{PARTS}", ())
    parts = value if isinstance(value, tuple) else (value,) * NUM_PARTS
    return parts if any(parts) else ()


def _why_layers(header: Header) -> str | None:
    count = header.own("block_count", 1)
    if not 0 < count <= MOST_LAYERS:
        return f"it has {count} layers, and llama.cpp takes 1 to {MOST_LAYERS}"
    if header.num_heads > count:
        return f"it has {header.num_heads} prediction heads, more than layers"
    loops = header.own("num_loops", 1) if header.architecture == LOOPING else 1
    if not 0 < loops * count <= MOST_LAYERS:
        return f"it has {count} layers {loops} times, and llama.cpp takes 1 to {MOST_LAYERS}"
    return None


def _why_experts(header: Header) -> str | None:
    """Return why a mixture's numbers cannot be used."""
    count, groups = header.own("expert_count"), header.own("expert_group_count")
    value = header.metadata.get(f"{header.architecture}.expert_used_count", 0)
    numbers = value if isinstance(value, tuple) else (value,)
    num_used = max((each for each in numbers if isinstance(each, int)), default=0)
    if header.architecture in MAY_BE_DENSE and count <= 1:
        count = num_used = 0
    is_fitting = num_used <= count <= MOST_EXPERTS and bool(count) == bool(num_used)
    if not is_fitting or (groups and groups >= count):
        return f"it has {count} experts in {groups} groups, of which a token uses {num_used}"
    num_dense = header.own("leading_dense_block_count")
    is_mixture = header.architecture in DENSE_AT_FIRST and num_dense < header.num_layers
    if not count and (is_mixture or header.architecture in NEVER_DENSE):
        return "it is a mixture without experts"
    used_groups = header.own("expert_group_used_count")
    if groups > 1 and (count % groups or not 0 < used_groups < groups):
        return f"it has {count} experts in {groups} groups, of which a token uses {used_groups}"
    return None


def _why_numbers(header: Header) -> str | None:
    """Return which number llama.cpp's operators do not take."""
    for kind in ("layer_norm_epsilon", "layer_norm_rms_epsilon"):
        epsilon = header.metadata.get(f"{header.architecture}.attention.{kind}", 0.0)
        if isinstance(epsilon, float) and not epsilon >= 0:
            return f"its {kind} is {epsilon:g}, not at least 0"
    if header.own("full_attention_interval", 1) < 1:
        return "its full_attention_interval is less than 1"
    if header.architecture == ALTERNATING and header.own("interleave_moe_layer_step", 1) < 1:
        return "its interleave_moe_layer_step is less than 1"
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    if isinstance(scaling, str) and scaling not in SCALINGS | {"none"}:
        return "it scales positions in a way that llama.cpp does not know"
    return None


def _why_compression(header: Header) -> str | None:
    """Return why the compression of keys cannot be used: llama.cpp's indexer needs a layer."""
    ratios = header.metadata.get(f"{COMPRESSING}.attention.compress_ratios")
    if header.architecture != COMPRESSING or not isinstance(ratios, tuple):
        return None
    is_indexed = INDEXED_RATIO in ratios[: max(0, header.num_layers - header.num_heads)]
    text = f"none of its layers compresses the keys of {INDEXED_RATIO} tokens into one"
    return None if is_indexed else text


def _why_states(header: Header) -> str | None:
    """Return why the layers that have a state cannot be used: a hybrid needs both kinds."""
    kind, inner = header.architecture, header.own("ssm.inner_size")
    if kind in TWICE_AS_WIDE and inner != 2 * (width := header.own("embedding_length")):
        return f"its ssm.inner_size is {inner}, not twice its width of {width}"
    num_heads, num_groups = header.own("ssm.time_step_rank", 1), header.own("ssm.group_count", 1)
    if kind == WITHOUT_GROUPS:
        num_groups = 0 if header.own("ssm.group_count") else 1
    is_divided = num_heads and num_groups and not (inner % num_heads or inner % num_groups)
    if kind in WITH_STATE_HEADS and not is_divided:
        return f"its ssm.inner_size of {inner} cannot be divided between its heads and groups"
    have_state = _have_state(header)
    if have_state and (all(have_state) or not any(have_state)):
        return f"{'all' if all(have_state) else 'none'} of its layers have a state"
    return None


def _have_state(header: Header) -> list[bool]:
    """Return which layers of a hybrid have a state, and not attention; empty for other models."""
    kind, count = header.architecture, max(0, header.num_layers - header.num_heads)
    if kind in ATTENDING_BY_HEADS:
        heads = values_of_layers(header, "attention.head_count")
        of_keys = values_of_layers(header, "attention.head_count_kv", heads)[:count]
        forward = values_of_layers(header, "feed_forward_length")
        pairs = zip(of_keys, forward, strict=False)
        return [not num for num, size in pairs if not (size and kind in FORWARD_ALONE)]
    if kind not in ATTENDING_EVERY:
        return []
    if f"{kind}.attention.recurrent_layers" in header.metadata:
        return [bool(each) for each in values_of_layers(header, "attention.recurrent_layers")][
            :count
        ]
    interval = header.own("full_attention_interval", ATTENDING_EVERY[kind])
    return [number % interval != 0 for number in range(1, count + 1)]


def _why_rotation(header: Header) -> str | None:
    """Return which rotation of queries and keys does not fit their length.

    Layers with a sliding window have the values of the others, unless they have their own. Where
    nothing is rotated though something must be, llama.cpp never comes back from it.
    """
    usual, kind = _usual_length(header), header.architecture
    length = header.own("attention.key_length", usual)
    rotated = header.own("rope.dimension_count", length)
    if kind == NEVER_TO_ROTATE and rotated:
        return f"it rotates {rotated} of {length} numbers of each attention head, instead of none"
    if not usual or kind in NOT_ROTATING:
        return None
    in_window = header.own("attention.key_length_swa", length)
    usual_in_window = rotated if kind == SHARING_KEYS else min(rotated, in_window)
    rotated_in_window = header.own("rope.dimension_count_swa", usual_in_window)
    for number, of_all in ((rotated, length), (rotated_in_window, in_window)):
        if number % 2 or not 0 < number <= of_all:
            return f"it rotates {number} of {of_all} numbers of each attention head"
    return None


def _why_parts(header: Header) -> str | None:
    """Return why the parts of positions cannot be used; some architectures need them."""
    parts, kind = parts_of_rotation(header), header.architecture
    is_read = f"{kind}.{PARTS}" in header.metadata or kind == READ_WITHOUT_PARTS
    if not parts and not (is_read and kind in ALWAYS_IN_PARTS):
        return None
    numbers = [part for part in parts if type(part) is int and part >= 0]
    length = header.own("attention.key_length", _usual_length(header))
    rotated = header.own("rope.dimension_count", length)
    is_known = len(numbers) == len(parts) == NUM_PARTS
    if is_known and sum(numbers[:3]) > 0 and sum(numbers) <= rotated:
        return None
    return "it has parts of positions that llama.cpp cannot use, or lacks them"


def _why_sizes(header: Header) -> str | None:
    """Return which sizes do not fit, where llama.cpp does not compare them with the tensors'."""
    kind, usual = header.architecture, _usual_length(header)
    keys, values = (header.own(f"attention.{part}_length", usual) for part in ("key", "value"))
    if kind in WITH_DELTA_NETS:
        of_heads = header.own("ssm.state_size") * header.own("ssm.time_step_rank")
        if header.own("ssm.inner_size") != of_heads:
            return f"its states of {of_heads} numbers do not fit its ssm.inner_size"
    if usual and kind in WITH_EQUAL_HEADS and keys != values:
        return f"its keys have {keys} numbers, its values {values}"
    if usual and kind in ROTATING_WHOLE and header.own("rope.dimension_count", keys) != keys:
        return f"it does not rotate all {keys} numbers of its keys"
    if kind == COMPRESSING and header.own("attention.head_count_kv", 1) != 1:
        return "its compressed keys are not its values"
    heads = header.own("attention.head_count")
    if kind in AS_WIDE_AS_HEADS and heads and heads * keys != header.own("embedding_length"):
        return f"its {heads} attention heads of {keys} numbers do not fit its width"
    return None


def _why_windows(header: Header) -> str | None:
    """Return why the layers that slide a window cannot be used: llama.cpp needs one."""
    count = max(1, header.num_layers - header.num_heads)
    if not window_of(header) or any(layers_with_window(header, count)):
        return None
    return "none of its layers slides a window"


def _why_shared_keys(header: Header) -> str | None:
    """Return why the last layers cannot use the keys of the last own one of their kind."""
    kind, count = header.architecture, header.num_layers
    if kind != SHARING_KEYS:
        return None
    num_own = count - header.own("attention.shared_kv_layers")
    slide = values_of_layers(header, "attention.sliding_window_pattern")
    slide = (*slide, *[0] * count)[:count]
    # llama.cpp takes the last but one for those that slide a window, the last for the others
    if num_own >= 2 and all(
        bool(slide[num_own - 1 - bool(each)]) == bool(each) for each in slide[num_own:]
    ):
        return None
    return f"only {num_own} of its {count} layers have keys of their own, not of both kinds"


def _usual_length(header: Header) -> int:
    """Return the share of the width that an attention head has.

    0 if the first layer has none: llama.cpp then takes no length from the file, and lengths are
    not checked here either.
    """
    heads = header.metadata.get(f"{header.architecture}.attention.head_count")
    first = heads[0] if isinstance(heads, tuple) and heads else heads
    return header.own("embedding_length") // first if isinstance(first, int) and first > 0 else 0

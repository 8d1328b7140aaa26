"""Write a network and its vocabulary as a GGUF file that llama.cpp loads."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType, quants

from scripts.lab.demo.network import NORM_EPSILON, ROPE_BASE, Network

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

FILE_TYPES = {
    GGMLQuantizationType.F32: LlamaFileType.ALL_F32,
    GGMLQuantizationType.Q8_0: LlamaFileType.MOSTLY_Q8_0,
    GGMLQuantizationType.Q4_0: LlamaFileType.MOSTLY_Q4_0,
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens in id order, the merges in rank order, and the control tokens."""

    tokens: list[str]
    merges: list[str]
    control: list[str]
    end_of_turn: str

    @property
    def end_of_turn_id(self) -> int:
        """The token that ends a turn."""
        return self.tokens.index(self.end_of_turn)


def write_gguf(
    path: Path,
    network: Network,
    vocabulary: Vocabulary,
    name: str,
    description: str,
    matrix_type: GGMLQuantizationType,
    embedding_type: GGMLQuantizationType,
) -> None:
    """Write the model file: metadata, vocabulary, then the quantized weights."""
    writer = GGUFWriter(str(path), "llama")
    writer.add_name(name)
    writer.add_author("specchat")
    writer.add_license("MIT")
    writer.add_description(description)
    _add_hyperparameters(writer, network, FILE_TYPES[matrix_type])
    _add_vocabulary(writer, vocabulary)
    for tensor_name, parameter in network.named_parameters():
        weights = parameter.detach().float().numpy()
        wanted = embedding_type if tensor_name.startswith("token_embd") else matrix_type
        kind = wanted if weights.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(tensor_name, quantised(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised(
    weights: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]", kind: GGMLQuantizationType
) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    """The bytes of a tensor in the wanted type."""
    if kind is GGMLQuantizationType.F32:
        return weights
    return quants.quantize(weights, kind)


def _add_hyperparameters(writer: GGUFWriter, network: Network, file_type: LlamaFileType) -> None:
    shape = network.shape
    writer.add_file_type(file_type)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(NORM_EPSILON)


def _add_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    control = set(vocabulary.control)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(
        [TokenType.CONTROL if t in control else TokenType.NORMAL for t in vocabulary.tokens]
    )
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.end_of_turn_id)
    writer.add_eot_token_id(vocabulary.end_of_turn_id)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

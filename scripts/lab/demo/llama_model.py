"""Just enough of llama.cpp's low-level interface to judge the demo pair."""

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from specchat.llama.library import start

CONTEXT = 2048


class LlamaModel:
    """A GGUF file with one context, whose memory can be cut back to any length."""

    def __init__(self, path: Path, threads: int) -> None:
        start()
        self._model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"cannot load {path}")
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = CONTEXT
        parameters.n_batch = CONTEXT
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._batch = llama_cpp.llama_batch_init(CONTEXT, 0, 1)
        self.num_vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocabulary)
        self.length = 0

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, control tokens included."""
        data = text.encode()
        buffer = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(
            self._vocabulary, data, len(data), buffer, len(buffer), True, True
        )
        return list(buffer[:count])

    def text(self, tokens: list[int]) -> str:
        """The text of some tokens; a control token has none."""
        buffer = ctypes.create_string_buffer(256)
        pieces = []
        for token in tokens:
            size = llama_cpp.llama_token_to_piece(self._vocabulary, token, buffer, 256, 0, False)
            pieces.append(buffer.raw[:size])
        return b"".join(pieces).decode(errors="replace")

    def is_end(self, token: int) -> bool:
        """Whether a token ends the turn."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocabulary, token))

    def evaluate(self, tokens: list[int], num_rows: int = 1) -> NDArray[np.float32]:
        """Add tokens to the memory and return the logits after the last `num_rows` of them."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = self.length + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = index >= len(tokens) - num_rows
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("llama.cpp could not decode")
        self.length += len(tokens)
        first = llama_cpp.llama_get_logits(self._context)
        return np.ctypeslib.as_array(first, (num_rows, self.num_vocabulary))

    def cut(self, length: int) -> None:
        """Roll the memory back to a length."""
        llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1)
        self.length = length
